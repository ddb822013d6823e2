"""Configures the whole suite.

A complete run must pass every test that docs/spec-coverage.md names. The verdict of a test depends on the code only,
not on chance or on the load of the machine.
"""

import faulthandler
import gc
import os
import signal
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from spark.quick_java import QUICK_JAVA
from spec_coverage import named_tests, unproven

# The same examples in every run, without a time limit; `EXAMPLES=random` in the environment generates new ones.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile(os.environ.get("EXAMPLES", "steady"))

_outcomes: dict[str, set[str]] = defaultdict(set)
_OUTCOMES = pytest.StashKey[list[str]]()
_STDERR = 2
_SPARK = ("tests/spark/", "tests/faults/test_spark.py")


class _AtOnce:
    """Reports each failure when it happens, because a run that is killed prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._terminal is not None:
            why = getattr(report.longrepr, "reprcrash", report.longrepr)
            self._terminal.write_line(f" {report.nodeid} failed in its {report.when}: {why}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole",
        action="store_true",
        help="fail unless every test that docs/spec-coverage.md names ran and passed",
    )
    parser.addoption(
        "--peer",
        choices=("millstream", "kafka"),
        default="millstream",
        help="the broker in tests/interop/",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # A shell sets SIGINT to ignored in background jobs, and children inherit that; some tests end processes by SIGINT.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Environment of every Spark driver that a test starts, and of the launcher of its Java process.
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, QUICK_JAVA)
    config.pluginmanager.register(_AtOnce(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest indivisible group of tests first, so that all processes end at about the same time."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))


def pytest_collection_finish() -> None:
    _freeze_what_stays()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    result = yield
    if nextitem is None or nextitem.path != item.path:
        _freeze_what_stays()
    return result


def _freeze_what_stays() -> None:
    """Exempt all living objects from garbage collection.

    Thousands of tests collect garbage, since asyncio reports an exception that nobody retrieved only then. Collected
    tests and imported modules stay to the end; each of these collections would otherwise search them again.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run all Spark tests in one process, and distribute tests in collection order.

    The Spark tests share one session, which is slow to start, and one Spark already uses two cores.
    """
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class OneSpark(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return "tests/spark" if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return OneSpark(config, log)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Arm the hang timeout again: pytest disarms it for a failed test, whose teardown may still hang."""
    limit_s = float(node.config.getini("faulthandler_timeout") or 0)
    if limit_s and isinstance(node, pytest.Item) and not node.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(limit_s, exit=True, file=_STDERR)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test has passed if its call phase has; a skip or an error may happen in any phase.
    if report.when == "call" or not report.passed:
        _outcomes[report.nodeid.partition("[")[0]].add(report.outcome)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not config.getoption("--whole") or hasattr(config, "workerinput"):
        return
    found = unproven(named_tests(), _outcomes)
    config.stash[_OUTCOMES] = found
    if found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_OUTCOMES, []):
        terminalreporter.write_line(f"named in docs/spec-coverage.md, but {line}", red=True)
