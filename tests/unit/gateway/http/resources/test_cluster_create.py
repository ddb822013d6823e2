"""Tests POST /cluster: both names of each field, durations with units, and refusals that name the field."""

from typing import Any

import pytest

from builders.gateways.web import Web, with_web
from millstream.gateway.operations.cluster_create import NoSupervisor
from millstream.model.errors import ErrorCode, FieldError
from millstream.process.control_protocol import ClusterFacts, NewCluster


class RecordingCreator(NoSupervisor):
    """Records the clusters to create, or refuses them with an error."""

    def __init__(self, error: FieldError | None = None) -> None:
        self.created: list[NewCluster] = []
        self._error = error

    async def create(self, new: NewCluster) -> ClusterFacts:
        if self._error is not None:
            raise self._error
        self.created.append(new)
        return ClusterFacts(
            new.name, (), False, new.log_directories, new.partitions, new.retention_ms, new.retention_bytes
        )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "c"}, NewCluster("c")),
        (
            {
                "name": "c",
                "num_brokers": 2,
                "log_directory": "logs",
                "partitions": 4,
                "retention_policies": 60_000,
            },
            NewCluster("c", 2, ("logs",), 4, 60_000),
        ),
        (
            {"name": "c", "brokers": 2, "log_directories": ["a", "b"], "retention_ms": "7d", "retention_bytes": "1GiB"},
            NewCluster("c", 2, ("a", "b"), None, 604_800_000, 2**30),
        ),
        ({"name": "c", "retention_policies": "36h"}, NewCluster("c", retention_ms=129_600_000)),
        (
            {"name": "c", "retention_ms": -1, "retention_bytes": -1},
            NewCluster("c", retention_ms=-1, retention_bytes=-1),
        ),
    ],
)
def test_a_cluster_is_created_from_either_name_of_a_field(body: dict[str, Any], expected: NewCluster) -> None:
    async def story(web: Web) -> None:
        creator = web.site.maker = RecordingCreator()
        answer = await web.ask("POST", "/cluster", body)
        assert answer.status == 201, answer.body
        assert creator.created == [expected]

    with_web(story)


@pytest.mark.parametrize(
    ("fields", "name", "other"),
    [
        ({"brokers": 1, "num_brokers": 1}, "brokers", "num_brokers"),
        ({"log_directories": [], "log_directory": "a"}, "log_directories", "log_directory"),
        ({"retention_ms": 5, "retention_policies": 5}, "retention_ms", "retention_policies"),
    ],
)
def test_both_names_of_a_field_are_refused(fields: dict[str, Any], name: str, other: str) -> None:
    async def story(web: Web) -> None:
        creator = web.site.maker = RecordingCreator()
        answer = await web.ask("POST", "/cluster", {"name": "c", **fields})
        assert answer.problem == (422, "INVALID_REQUEST", other)
        assert f"`{name}` and `{other}`" in answer.json["detail"]
        assert creator.created == []

    with_web(story)


@pytest.mark.parametrize(
    ("fields", "field", "code", "detail"),
    [
        ({"num_brokers": 0}, "num_brokers", "INVALID_CLUSTER", "num_brokers: expected"),
        ({"num_broker": 1}, "num_broker", "INVALID_REQUEST", "did you mean `num_brokers`?"),
        ({"retention_policy": 1}, "retention_policy", "INVALID_REQUEST", "did you mean `retention_policies`?"),
        (
            {"retention_policies": "soon"},
            "retention_policies",
            "INVALID_CONFIG",
            'retention_policies: "soon" is not a duration (examples: 7d, 36h, 600000)',
        ),
        ({"retention_bytes": "big"}, "retention_bytes", "INVALID_CONFIG", 'retention_bytes: "big" is not a size'),
        ({"retention_ms": -2}, "retention_ms", "INVALID_CONFIG", "retention_ms: expected"),
        ({"retention_policies": {"age": 5}}, "retention_policies", "INVALID_REQUEST", "retention_policies: expected"),
    ],
)
def test_an_invalid_cluster_field_is_named_in_the_error(
    fields: dict[str, Any], field: str, code: str, detail: str
) -> None:
    async def story(web: Web) -> None:
        web.site.maker = RecordingCreator()
        answer = await web.ask("POST", "/cluster", {"name": "c", **fields})
        assert answer.problem == (422, code, field)
        assert detail in answer.json["detail"]

    with_web(story)


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"log_directory": "../a"}, "log_directory"), ({"log_directories": ["../a"]}, "log_directories")],
)
def test_a_supervisor_error_names_the_field_by_the_alias_used_in_the_request(
    fields: dict[str, Any], field: str
) -> None:
    async def story(web: Web) -> None:
        refusal = FieldError(ErrorCode.INVALID_CLUSTER, "log_directories: outside of the cluster", "log_directories")
        web.site.maker = RecordingCreator(refusal)
        answer = await web.ask("POST", "/cluster", {"name": "c", **fields})
        assert answer.problem == (422, "INVALID_CLUSTER", field)
        assert answer.json["detail"] == f"{field}: outside of the cluster"

    with_web(story)
