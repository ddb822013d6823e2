"""One client and many threads, one client and a fork: with real ones."""

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock.testing import RealBroker

FORKING = """
import gc, os, sys, warnings
import penstock

warnings.simplefilter("ignore", DeprecationWarning)  # Newer Pythons warn of every fork of a process with threads.
client = penstock.connect(sys.argv[1])
client.create_topic("forked")
sys.stdout.flush()
child = os.fork()
if child == 0:
    try:
        client.list_topics()
    except penstock.PenstockError as error:
        print(error.code.name)
    client.close()
    with penstock.connect(sys.argv[1]) as own:
        print([topic.name for topic in own.list_topics()])
    {end}
assert os.waitpid(child, 0)[1] == 0
for _ in range(3):
    assert [topic.name for topic in client.list_topics(timeout=60)] == ["forked"]
client.close()
print("the parent goes on")
"""


@pytest.mark.parametrize(
    "end",
    ["sys.exit()", "os._exit(sys.stdout.flush() or 0)", "del client; gc.collect(); sys.exit()"],
    ids=["a usual end", "an end at once", "an end after everything was collected"],
)
def test_after_a_fork_the_client_is_the_parents_and_goes_on_there(end: str, penstock_process: RealBroker) -> None:
    program = FORKING.replace("{end}", end)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, penstock_process.bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["CLIENT_MISUSED", "['forked']", "the parent goes on"]


def test_a_process_that_never_closes_its_client_ends_all_the_same(penstock_bootstrap: str) -> None:
    program = """
        import sys, penstock
        client = penstock.connect(sys.argv[1], on_clock_drift=print)
        client.list_topics()
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), penstock_bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_many_threads_use_one_client_at_once(penstock_bootstrap: str) -> None:
    with penstock.connect(penstock_bootstrap) as client:

        def work(number: int) -> tuple[str, int]:
            name = f"threads-{number}"
            client.create_topic(name, partitions=number % 3 + 1)
            return name, len(client.describe_topic(name).partitions)

        with ThreadPoolExecutor(8) as pool:
            made = dict(pool.map(work, range(40)))
        assert made == {f"threads-{number}": number % 3 + 1 for number in range(40)}
        assert made.keys() <= {topic.name for topic in client.list_topics()}


def test_closing_in_one_thread_ends_what_others_wait_for(penstock_bootstrap: str) -> None:
    client = penstock.connect(penstock_bootstrap)
    begun = threading.Barrier(5)

    def work() -> penstock.ErrorCode:
        begun.wait(60)
        while True:
            try:
                client.list_topics()
            except penstock.PenstockError as error:
                return error.code

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work) for _ in range(4)]
        begun.wait(60)
        client.list_topics()
        client.close()
        codes = {each.result(60) for each in working}
    assert codes <= {penstock.ErrorCode.CLIENT_CLOSED, penstock.ErrorCode.NETWORK_EXCEPTION}


def test_a_callback_that_would_wait_for_its_own_thread_is_told_so(penstock_bootstrap: str) -> None:
    clients: list[penstock.Client] = []
    said: list[str] = []

    def heard(*_: object) -> None:
        try:
            clients[0].list_topics()
        except penstock.PenstockError as error:
            said.append(str(error))

    with penstock.connect(penstock_bootstrap) as client:
        clients.append(client)
        client._call(heard)
    assert len(said) == 1
    assert said[0].startswith("CLIENT_MISUSED: a callback of a client that blocks runs on the client's own thread")
