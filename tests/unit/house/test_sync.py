"""Checks that the generated blocking classes are up to date."""

import pytest

import sync


def test_the_generated_blocking_classes_are_up_to_date() -> None:
    assert sync.stale() == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("async def f() -> AsyncX:\n    return await g()\n", "def f() -> X:\n    return g()\n"),
        ("async with a as b:\n    async for c in b:\n        pass\n", "with a as b:\n    for c in b:\n        pass\n"),
        ("from millstream.sdk.aio.facade import AsyncFacade\n", "from millstream.sdk.sync.facade import Facade\n"),
        (
            "async def __anext__(self) -> int:\n    raise StopAsyncIteration\n",
            "def __next__(self) -> int:\n    raise StopIteration\n",
        ),
        ('"""Use `async with connect_async(x)`, or await it."""\n', '"""Use `with connect(x)`, or it."""\n'),
        ("a = [await f(x) for x in y]  # await f\n", "a = [f(x) for x in y]  # f\n"),
        ("if True:\n\n    a = 1\n\n    b = 2\nc = 3\n", "if True:\n\n    a = 1\n\n    b = 2\nc = 3\n"),
        ('a = f"<AsyncX of {b!r}: {{c}} {await d()}>"\n', 'a = f"<X of {b!r}: {{c}} {d()}>"\n'),
        ("asynchronous = awaited = Asyncio = 1\n", "asynchronous = awaited = Asyncio = 1\n"),
    ],
)
def test_translation_removes_only_async_words(source: str, target: str) -> None:
    _, _, translated = sync.translate(source, "x.py").partition("\n")
    assert translated == target
