"""Generates the OpenAPI document from the table of operations, which also defines the routes."""

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from millstream import __version__
from millstream.gateway.failures import STATUSES
from millstream.gateway.http.operation_table import WebOperation
from millstream.gateway.http.responses import ProblemDetails
from millstream.model.errors import ErrorCode

_REFERENCE = "#/components/schemas/{name}"
_PATH_NAME = re.compile(r"{(\w+)}")
_ALWAYS = (ErrorCode.INVALID_REQUEST, ErrorCode.GATEWAY_FULL, ErrorCode.NETWORK_EXCEPTION)
_PROTOCOL_ERRORS = {400: "The request is malformed.", 408: "The request was not received completely in time."}

_ABOUT = """\
The web API of Millstream. Every error is a problem document (RFC 9457); its `code` is the same on every interface
([list of error codes](/docs/errors)). The parameters of a GET may also be sent as a JSON body."""


def document(operations: Sequence[WebOperation]) -> dict[str, Any]:
    """Build the whole document. The same table always gives the same document."""
    structs = [
        *{struct: None for each in operations for struct in _structs(each) if struct},
        ProblemDetails,
    ]
    schemas, components = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    by_struct = dict(zip(structs, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _described(operation, by_struct, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millstream web API", "version": __version__, "description": _ABOUT},
        "tags": [{"name": name} for name in dict.fromkeys(operation.group for operation in operations)],
        "paths": paths,
        "components": {"schemas": {name: components[name] for name in sorted(_used(paths, components))}},
    }


def _structs(operation: WebOperation) -> Iterable[type[msgspec.Struct] | None]:
    return operation.parameters, operation.body, operation.answer, operation.other_answer


def _described(operation: WebOperation, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "x-millstream-right": operation.right.value,
    }
    if operation.details:
        described["description"] = operation.details
    parameters = _parameters(operation, _resolved(schemas[operation.parameters], components))
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _contents(operation, schemas[operation.body])}
    described["responses"] = _responses(operation, schemas)
    return described


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]]
    return found


def _parameters(operation: WebOperation, schema: dict[str, Any]) -> list[dict[str, Any]]:
    in_path = _PATH_NAME.findall(operation.path)
    required = schema.get("required", [])
    given = _given(operation)
    rows = []
    for name, field in schema["properties"].items():
        where = "path" if name in in_path else "query"
        shown = {key: value for key, value in field.items() if key != "description"}
        row = {"name": name, "in": where, "required": where == "path" or name in required, "schema": shown}
        if "description" in field:
            row["description"] = field["description"]
        if name in given:
            row["example"] = given[name]
        rows.append(row)
    return rows


def _given(operation: WebOperation) -> dict[str, str]:
    """Return the parameters of the first example."""
    if not operation.examples:
        return {}
    path, _, query = operation.examples[0].path.partition("?")
    pattern = _PATH_NAME.sub(r"(?P<\1>[^/]+)", operation.path)
    match = re.fullmatch(pattern, path)
    assert match is not None, f"an example of {operation.name} is for another path"
    return {**match.groupdict(), **dict(parse_qsl(query))}


def _contents(operation: WebOperation, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the media types of the body, each with examples that can be sent unchanged."""
    contents: dict[str, Any] = {"application/json": {"schema": schema}}
    for kind in operation.bodies:
        contents[kind] = {"schema": {"type": "string"}}
    for example in operation.examples:
        if example.body is not None and example.status is None:
            shown = example.body.decode() if isinstance(example.body, bytes) else example.body
            content = contents.setdefault(example.content_type, {"schema": {"type": "string"}})
            content.setdefault("examples", {})[example.name] = {"summary": example.name, "value": shown}
    return contents


def _responses(operation: WebOperation, schemas: dict[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        shapes = [schemas[each] for each in (operation.answer, operation.other_answer) if each]
        good["content"] = {"application/json": {"schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}}
        good["content"] |= {kind: {"schema": {"type": "string"}} for kind in operation.media}
    found = {str(operation.status): good}
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*operation.errors, *_ALWAYS)):
        by_status.setdefault(STATUSES[code].http, []).append(f"{code.name}: {code.meaning}.")
    for status, text in _PROTOCOL_ERRORS.items():
        by_status.setdefault(status, []).append(text)
    for status, texts in sorted(by_status.items()):
        content = {"application/problem+json": {"schema": schemas[ProblemDetails]}}
        found[str(status)] = {"description": " ".join(texts), "content": content}
    found["default"] = {
        "description": "Any other error.",
        "content": {"application/problem+json": {"schema": schemas[ProblemDetails]}},
    }
    return found


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _used(paths: dict[str, Any], components: dict[str, Any]) -> set[str]:
    """Return the schemas that are referenced.

    The result leaves out the schemas of parameters, because the document lists parameters one by one.
    """
    found: set[str] = set()
    left = set(_references(paths))
    while left:
        name = left.pop()
        found.add(name)
        left |= set(_references(components[name])) - found
    return found
