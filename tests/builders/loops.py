"""Loops over seeds or versions inside one test, because they are not separate test cases."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def for_each(name: str, values: Iterable[object]) -> Callable[[Test], Test]:
    """Run a test's body once with each value as the argument `name`; a failure names the value.

    Each value gets a `tmp_path` of its own. Other fixtures are created once, so the body must not need fresh ones.
    """
    every = list(values)
    assert every, f"no value for {name}"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def looped(*given: Any, **named: Any) -> None:
            for number, value in enumerate(every):
                own = dict(named)
                if "tmp_path" in named:
                    own["tmp_path"] = named["tmp_path"] / f"{name}-{number}"
                    own["tmp_path"].mkdir()
                try:
                    test(*given, **own, **{name: value})
                except BaseException as failure:
                    failure.add_note(f"with {name}={value!r}")
                    raise

        # Pytest must neither look for a fixture of this name nor inspect the wrapped function.
        del looped.__wrapped__
        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        looped.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return looped

    return decorate
