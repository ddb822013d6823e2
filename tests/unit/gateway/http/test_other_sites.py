"""Pages of other web sites may not use a gateway that whoever reads them can reach."""

import pytest

from builders.gateways.web import Web, with_web
from millstream.gateway.http.web_context import WebLimits

POLL = "/events?topic=t&group=g&consumer=a&auto_commit=true&wait=0"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
def test_what_another_sites_page_shows_or_opens_has_no_effect(site: str, mode: str) -> None:
    async def story(web: Web) -> None:
        await web.ask("POST", "/events", {"topic": "t", "value": "a"})
        answer = await web.ask("GET", POLL, sec_fetch_site=site, sec_fetch_mode=mode)
        assert answer.problem == (403, "CLUSTER_AUTHORIZATION_FAILED", "Sec-Fetch-Site")
        assert (await web.ask("GET", "/v1/groups")).json["groups"] == []
        assert (await web.ask("GET", "/docs", sec_fetch_site=site, sec_fetch_mode=mode)).status == 200

    with_web(story)


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_gateways_own_pages_and_who_types_an_address_may_ask(site: str) -> None:
    async def story(web: Web) -> None:
        assert (await web.ask("GET", "/v1/topics", sec_fetch_site=site)).status == 200

    with_web(story)


def test_sites_that_are_named_may_ask() -> None:
    async def story(web: Web) -> None:
        async def asked_from(origin: str) -> int:
            return (await web.ask("GET", "/v1/topics", origin=origin, sec_fetch_site="cross-site")).status

        assert await asked_from("https://ours.example") == 200
        assert await asked_from("https://others.example") == 403
        assert await asked_from("null") == 403
        assert (await web.ask("GET", "/v1/topics", sec_fetch_site="cross-site")).status == 403

    with_web(story, WebLimits(origins=("https://ours.example",)))
