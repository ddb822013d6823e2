"""Tests that every example of the served documentation runs and answers as documented."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx


def requests_of(document: dict[str, Any]) -> Iterator[tuple[str, str, str, Any, str, dict[str, Any]]]:
    """Yield operation id, method, path with parameters, body, media type and operation of each example."""
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            path, query = template, []
            for parameter in operation.get("parameters", []):
                if "example" in parameter:
                    value = quote(parameter["example"], safe="")
                    if parameter["in"] == "path":
                        path = path.replace(f"{{{parameter['name']}}}", value)
                    else:
                        query.append(f"{parameter['name']}={value}")
            target = path + ("?" + "&".join(query) if query else "")
            contents = operation.get("requestBody", {}).get("content", {})
            if not contents:
                yield operation["operationId"], method, target, None, "", operation
            for kind, content in contents.items():
                for example in content.get("examples", {}).values():
                    yield operation["operationId"], method, target, example["value"], kind, operation


def send(web: httpx.Client, method: str, target: str, body: Any, kind: str) -> httpx.Response:
    if body is None:
        return web.request(method, target)
    if kind == "application/json":
        return web.request(method, target, json=body)
    return web.request(method, target, content=body.encode(), headers={"content-type": kind})


def test_every_example_of_the_openapi_document_runs(web: httpx.Client) -> None:
    """An iterator in an example is replaced by the last one that was answered."""
    document = web.get("/openapi.json").json()
    ran: dict[str, int] = {}
    iterator = None
    for name, method, target, body, kind, operation in requests_of(document):
        if isinstance(body, dict) and "iterator" in body:
            body["iterator"] = iterator
        answer = send(web, method, target, body, kind)
        if name in ("getIterator", "readIterator"):
            iterator = answer.json().get("iterator", answer.json())
        good = next(status for status in operation["responses"] if status.startswith("2"))
        assert str(answer.status_code) == good, (name, target, answer.text)
        ran[name] = ran.get(name, 0) + 1
    every = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert set(ran) == every, "every operation has an example"
    assert ran["postEvents"] >= 5


def test_every_operation_documents_its_right_and_errors(web: httpx.Client) -> None:
    document = web.get("/openapi.json").json()
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["x-millstream-right"] not in ("", "nothing")
            assert {"422", "503", "default"} <= set(operation["responses"])


def test_every_schema_reference_of_the_openapi_document_exists(web: httpx.Client) -> None:
    text = web.get("/openapi.json").text
    schemas = web.get("/openapi.json").json()["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/(\w+)", text)) == set(schemas)


def test_the_documentation_page_loads_only_local_files(web: httpx.Client) -> None:
    page = web.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(files) == 3
    for path in files:
        assert path.startswith("/docs/assets/")
        assert web.get(path).status_code == 200
    assert "http" not in page.text
    assert web.get("/docs/assets/../../secrets").status_code == 404


def test_the_type_of_a_problem_links_to_the_error_page(web: httpx.Client) -> None:
    problem = web.get("/events").json()
    path, _, name = problem["type"].partition("#")
    assert f'id="{name}"' in web.get(path).text
