"""Tests that pages of other web sites cannot use a gateway that their readers can reach."""

import pytest

from builders.gateways.web import Web, with_web
from millstream.gateway.http.web_context import WebLimits

POLL = "/events?topic=t&group=g&consumer=a&auto_commit=true&wait=0"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
def test_cross_site_requests_are_refused_except_for_documentation(site: str, mode: str) -> None:
    async def story(web: Web) -> None:
        await web.ask("POST", "/events", {"topic": "t", "value": "a"})
        answer = await web.ask("GET", POLL, sec_fetch_site=site, sec_fetch_mode=mode)
        assert answer.problem == (403, "CLUSTER_AUTHORIZATION_FAILED", "Sec-Fetch-Site")
        assert (await web.ask("GET", "/v1/groups")).json["groups"] == []
        assert (await web.ask("GET", "/docs", sec_fetch_site=site, sec_fetch_mode=mode)).status == 200

    with_web(story)


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_same_origin_pages_and_typed_addresses_may_send_requests(site: str) -> None:
    async def story(web: Web) -> None:
        assert (await web.ask("GET", "/v1/topics", sec_fetch_site=site)).status == 200

    with_web(story)


def test_allowed_origins_may_send_requests() -> None:
    async def story(web: Web) -> None:
        async def status_for(origin: str) -> int:
            return (await web.ask("GET", "/v1/topics", origin=origin, sec_fetch_site="cross-site")).status

        assert await status_for("https://ours.example") == 200
        assert await status_for("https://others.example") == 403
        assert await status_for("null") == 403
        assert (await web.ask("GET", "/v1/topics", sec_fetch_site="cross-site")).status == 403

    with_web(story, WebLimits(origins=("https://ours.example",)))
