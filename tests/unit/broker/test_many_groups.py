"""Tests requests that name many groups: they yield to other requests, and duplicates are answered once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.served import ServedBroker, serve
from millstream.broker.dispatch.request import BrokerRequest, Result, Work
from millstream.broker.group_requests import GroupCoordination
from millstream.broker.handlers.consumer_group_describe import ConsumerGroupDescribeHandler
from millstream.broker.handlers.delete_groups import DeleteGroupsHandler
from millstream.broker.handlers.describe_groups import DescribeGroupsHandler
from millstream.wire.messages import write_request

NAMES = [f"group-{number}" for number in range(100)]
Handler = Callable[[GroupCoordination], Callable[[BrokerRequest], Result]]


@pytest.mark.parametrize(
    ("api", "version", "fields", "handler"),
    [
        ("DescribeGroups", 6, {"groups": NAMES}, DescribeGroupsHandler),
        ("ConsumerGroupDescribe", 1, {"group_ids": NAMES}, ConsumerGroupDescribeHandler),
        ("DeleteGroups", 2, {"groups_names": NAMES}, DeleteGroupsHandler),
    ],
)
def test_a_request_with_many_groups_yields_between_groups(
    api: str, version: int, fields: dict[str, Any], handler: Handler, tmp_path: Path
) -> None:
    async def story(broker: ServedBroker) -> None:
        await broker.groups.ensure()
        work = handler(broker.groups)(
            BrokerRequest(version, correlation_id=1, frame=memoryview(write_request(api, version, fields)), body=0)
        )
        assert isinstance(work, Work)
        answering = asyncio.ensure_future(work.run)
        turns = 0
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= len(NAMES)

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("api", "version", "field"), [("DescribeGroups", 6, "groups"), ("ConsumerGroupDescribe", 1, "group_ids")]
)
def test_a_group_named_repeatedly_is_described_once(api: str, version: int, field: str, tmp_path: Path) -> None:
    async def story(broker: ServedBroker) -> None:
        answer = await (await broker.peer()).ask(api, version, {field: ["one", "other", *["one"] * 100]})
        assert [group["group_id"] for group in answer["groups"]] == ["one", "other"]

    serve(tmp_path, story)
