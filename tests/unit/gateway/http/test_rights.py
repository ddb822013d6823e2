"""Tests that rights are checked before the body is read, and again for the resources in the body."""

import re

import pytest

from builders.authorization.rights import Rights, all_rights, no_rights
from builders.gateways.web import Web, with_web
from millstream.gateway.http.operation_table import WebOperation
from millstream.gateway.http.routes import OPERATIONS
from millstream.model.rights import Right

GUARDED = [operation for operation in OPERATIONS if operation.right is not Right.NOTHING]


@pytest.mark.parametrize("operation", GUARDED, ids=[operation.name for operation in GUARDED])
def test_an_operation_is_refused_before_its_body_is_read(operation: WebOperation) -> None:
    async def story(web: Web) -> None:
        web.site.authorizer = Rights(no_rights, any_resource=False)
        target = re.sub(r"\{\w+\}", "1", operation.path)
        refused = await web.ask(operation.method, target, b"no JSON")
        assert refused.problem == (403, operation.right.refusal.name, None)
        assert web.parts_read == 0

    with_web(story)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/events?topic=denied"),
        ("PATCH", "/v1/topics/denied/settings"),
        ("POST", "/v1/groups/denied/consumers/a/heartbeat"),
        ("GET", "/events?topic=t&group=denied"),
    ],
)
def test_a_denied_resource_in_path_or_query_is_refused_before_the_body_is_read(method: str, target: str) -> None:
    async def story(web: Web) -> None:
        web.site.authorizer = Rights(lambda right, resource: resource != "denied")
        refused = await web.ask(method, target, b"no JSON")
        assert refused.status == 403
        assert refused.json["detail"].endswith("on 'denied'")
        assert web.parts_read == 0

    with_web(story)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/topic", {"name": "denied"}),
        ("/events", {"topic": "denied", "value": "a"}),
        ("/events?topic=t", {"events": [{"value": "a"}, {"value": "b", "topic": "denied"}]}),
    ],
)
def test_a_denied_resource_in_the_body_is_refused_before_any_change(target: str, body: object) -> None:
    async def story(web: Web) -> None:
        assert (await web.ask("POST", "/topic", {"name": "t"})).status == 201
        web.site.authorizer = Rights(lambda right, resource: resource != "denied")
        assert (await web.ask("POST", target, body)).problem == (403, "TOPIC_AUTHORIZATION_FAILED", None)
        web.site.authorizer = Rights(all_rights)
        topics = (await web.ask("GET", "/v1/topics")).json["topics"]
        assert [topic["name"] for topic in topics] == ["t"]
        assert (await web.ask("GET", "/events?topic=t&offset=0&wait=0")).json["events"] == []

    with_web(story)


def test_documentation_requires_no_right() -> None:
    async def story(web: Web) -> None:
        web.site.authorizer = Rights(no_rights, any_resource=False)
        assert (await web.ask("GET", "/openapi.json")).status == 200

    with_web(story)


@pytest.mark.parametrize(
    ("method", "target", "body", "cluster"),
    [
        ("POST", "/v1/clusters/other/stop", None, "other"),
        ("POST", "/v1/clusters/other/start", None, "other"),
        ("DELETE", "/v1/clusters/other", None, "other"),
        ("POST", "/cluster", {"name": "other"}, "other"),
        ("GET", "/v1/topics?cluster=other", None, "other"),
        ("GET", "/v1/topics", None, "default"),
        ("POST", "/topic", {"name": "t", "cluster": "other"}, "other"),
        ("POST", "/topic", {"name": "t"}, "default"),
        ("GET", "/v1/clusters", None, ""),
    ],
)
def test_a_right_is_checked_on_the_cluster_that_the_request_names(
    method: str, target: str, body: object, cluster: str
) -> None:
    async def story(web: Web) -> None:
        rights = Rights(all_rights)
        web.site.authorizer = rights
        await web.ask(method, target, body)
        assert rights.clusters[-1] == cluster

    with_web(story)
