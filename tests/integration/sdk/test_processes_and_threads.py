"""Tests the client with real threads and real forks."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import millstream
from millstream.testing import RealBroker

FORKING = """
import gc, os, sys, warnings
import millstream

warnings.simplefilter("ignore", DeprecationWarning)  # Newer Pythons warn of every fork of a process with threads.
client = millstream.connect(sys.argv[1])
client.create_topic("forked")
sys.stdout.flush()
child = os.fork()
if child == 0:
    try:
        client.list_topics()
    except millstream.MillstreamError as error:
        print(error.code.name)
    client.close()
    with millstream.connect(sys.argv[1]) as own:
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
def test_after_a_fork_the_client_works_only_in_the_parent(end: str, millstream_process: RealBroker) -> None:
    program = FORKING.replace("{end}", end)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, millstream_process.bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["CLIENT_MISUSED", "['forked']", "the parent goes on"]


def test_a_process_exits_although_its_client_was_not_closed(millstream_bootstrap: str) -> None:
    program = """
        import sys, millstream
        client = millstream.connect(sys.argv[1], on_clock_drift=print)
        client.list_topics()
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), millstream_bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


ENDS = {
    "the client is closed": "client.close()",
    "the producer is closed": "producer.close()",
    "the program says so": "sys.exit()",
    "everything is garbage": "del client, producer; gc.collect()",
    "nothing more is to do": "",
}


def run(program: str, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    with millstream.connect(bootstrap) as client:
        return [message.value for message in client.consumer(topic, start="beginning", stop="latest")]


@pytest.mark.parametrize("end", ENDS)
def test_put_messages_are_sent_before_the_program_exits(end: str, millstream_bootstrap: str) -> None:
    topic = f"ends-{list(ENDS).index(end)}"
    program = f"""
        import gc, sys, millstream
        client = millstream.connect(sys.argv[1])
        producer = client.producer(linger=60)
        for number in range(1000):
            producer.put({topic!r}, str(number))
        {ENDS[end]}
    """
    assert run(program, millstream_bootstrap) == (0, "", "")
    assert values(millstream_bootstrap, topic) == [b"%d" % number for number in range(1000)]


@pytest.mark.parametrize("kind", ["consumer", "subscription"])
def test_buffered_messages_are_not_returned_after_a_fork_or_close(kind: str, millstream_process: RealBroker) -> None:
    program = """
        import os, sys, warnings, millstream
        warnings.simplefilter("ignore", DeprecationWarning)
        client = millstream.connect(sys.argv[1])
        client.producer().put_many("in-hand-" + sys.argv[2], [b"a", b"b", b"c"]).result(60)
        reader = getattr(client, sys.argv[2])("in-hand-" + sys.argv[2], start="beginning")
        messages = iter(reader)
        print(next(messages).value, flush=True)
        child = os.fork()
        if child == 0:
            for ask in (lambda: reader.poll(timeout=0), lambda: next(messages), lambda: next(iter(reader))):
                try:
                    print(ask())
                except millstream.MillstreamError as error:
                    print(error.code.name)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        print(next(messages).value)
        reader.close()
        try:
            print(reader.poll(timeout=0))
        except millstream.MillstreamError as error:
            print(error.code.name)
        client.close()
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), millstream_process.bootstrap, kind],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["b'a'", *["CLIENT_MISUSED"] * 3, "b'b'", "CLIENT_CLOSED"]


def test_messages_put_before_a_fork_are_sent_once_by_the_parent(millstream_process: RealBroker) -> None:
    program = """
        import os, sys, warnings, millstream
        warnings.simplefilter("ignore", DeprecationWarning)
        client = millstream.connect(sys.argv[1])
        producer = client.producer(linger=60)
        producer.put("inherited", "before")
        child = os.fork()
        if child == 0:
            try:
                producer.put("inherited", "in the child")
            except millstream.MillstreamError as error:
                print(error.code.name)
            producer.close()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        producer.put("inherited", "after")
        client.close()
    """
    assert run(program, millstream_process.bootstrap) == (0, "CLIENT_MISUSED\n", "")
    assert values(millstream_process.bootstrap, "inherited") == [b"before", b"after"]


def test_receipts_of_the_parent_raise_client_misused_in_a_forked_child(millstream_process: RealBroker) -> None:
    program = """
        import asyncio, os, sys, warnings, millstream
        warnings.simplefilter("ignore", DeprecationWarning)
        client = millstream.connect(sys.argv[1])
        producer = client.producer(linger=60)
        one, many = producer.put("awaited", "one"), producer.put_many("awaited", ["two", "three"])
        child = os.fork()
        if child == 0:
            for ask in (one.result, one.exception, many.result, lambda: asyncio.run(asyncio.wait_for(one, 60))):
                try:
                    print(ask())
                except millstream.MillstreamError as error:
                    print(error.code.name)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        print(one.result().offset, one.exception(), many.exception())
        client.close()
    """
    printed = "CLIENT_MISUSED\n" * 4 + "0 None None\n"
    assert run(program, millstream_process.bootstrap) == (0, printed, "")


@pytest.mark.parametrize("kind", ["consumer", "subscription"])
def test_a_running_loop_raises_client_closed_after_close(kind: str, millstream_bootstrap: str) -> None:
    topic = f"loop-{kind}"
    with millstream.connect(millstream_bootstrap) as client:
        client.producer().put_many(topic, [b"a", b"b", b"c"]).result(60)
        reader = getattr(client, kind)(topic, start="beginning")
        loop = iter(reader)
        assert next(loop).value == b"a"
        reader.close()
        with pytest.raises(millstream.MillstreamError) as refused:
            next(loop)
        assert refused.value.code is millstream.ErrorCode.CLIENT_CLOSED
        assert "closed" in repr(reader)


def test_many_threads_put_through_one_producer(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client, client.producer() as producer:

        def work(thread: int) -> list[int]:
            receipts = [producer.put("from-threads", f"{thread} {number}") for number in range(300)]
            return [receipt.result(60).offset for receipt in receipts]

        with ThreadPoolExecutor(8) as pool:
            offsets = list(pool.map(work, range(8)))
    assert sorted(offset for each in offsets for offset in each) == list(range(2400))
    assert all(each == sorted(each) for each in offsets)


def test_a_second_thread_that_polls_a_consumer_is_refused(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client:
        client.create_topic("read-by-two")
        consumer = client.consumer("read-by-two", start="beginning")
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(consumer.poll, None)
            while True:
                try:
                    consumer.poll(0)
                except millstream.MillstreamError as error:
                    refused = error
                    break
            client.close()
            assert isinstance(first.exception(60), millstream.MillstreamError)
    assert refused.code is millstream.ErrorCode.CLIENT_MISUSED


def test_many_threads_use_one_client_at_once(millstream_bootstrap: str) -> None:
    with millstream.connect(millstream_bootstrap) as client:

        def work(number: int) -> tuple[str, int]:
            name = f"threads-{number}"
            client.create_topic(name, partitions=number % 3 + 1)
            return name, len(client.describe_topic(name).partitions)

        with ThreadPoolExecutor(8) as pool:
            made = dict(pool.map(work, range(40)))
        assert made == {f"threads-{number}": number % 3 + 1 for number in range(40)}
        assert made.keys() <= {topic.name for topic in client.list_topics()}


def test_threads_can_create_and_close_producers_while_the_client_closes(millstream_bootstrap: str) -> None:
    client = millstream.connect(millstream_bootstrap)
    begun = threading.Barrier(5)

    def work() -> millstream.ErrorCode:
        begun.wait(60)
        while True:
            try:
                client.producer()
                client.producer().close()
                repr(client)
            except millstream.MillstreamError as error:
                return error.code

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work) for _ in range(4)]
        begun.wait(60)
        client.list_topics()
        client.close()
        assert {each.result(60) for each in working} == {millstream.ErrorCode.CLIENT_CLOSED}


def test_closing_in_one_thread_ends_calls_of_other_threads(millstream_bootstrap: str) -> None:
    client = millstream.connect(millstream_bootstrap)
    begun = threading.Barrier(5)

    def work() -> millstream.ErrorCode:
        begun.wait(60)
        while True:
            try:
                client.list_topics()
            except millstream.MillstreamError as error:
                return error.code

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work) for _ in range(4)]
        begun.wait(60)
        client.list_topics()
        client.close()
        codes = {each.result(60) for each in working}
    assert codes <= {millstream.ErrorCode.CLIENT_CLOSED, millstream.ErrorCode.NETWORK_EXCEPTION}


def test_a_blocking_call_in_a_callback_is_refused(millstream_bootstrap: str) -> None:
    clients: list[millstream.Client] = []
    printed: list[str] = []

    def on_done(*_: object) -> None:
        try:
            clients[0].list_topics()
        except millstream.MillstreamError as error:
            printed.append(str(error))

    with millstream.connect(millstream_bootstrap) as client:
        clients.append(client)
        client._call(on_done)
    assert len(printed) == 1
    assert printed[0].startswith("CLIENT_MISUSED: a callback of a blocking client runs on the client's own thread")


def test_refused_calls_in_a_callback_do_not_affect_client_and_messages(
    millstream_bootstrap: str,
) -> None:
    codes: list[millstream.ErrorCode] = []

    def on_done(_: object) -> None:
        for refused in (other.exception, client.close, lambda: client.consumer("called-back")):
            try:
                refused()
            except millstream.MillstreamError as error:
                codes.append(error.code)

    with millstream.connect(millstream_bootstrap) as client:
        slow = client.producer(linger=60)
        other = slow.put("called-back", "later")
        with client.producer() as producer:
            producer.put("called-back", "at once", on_done=on_done)
        assert codes == [millstream.ErrorCode.CLIENT_MISUSED] * 3
        assert other.exception(60) is None
        assert str(client) == f"<Client of {millstream_bootstrap}, open, with 1 producer>"


def test_an_async_client_can_be_closed_after_misuse_in_another_thread(
    millstream_bootstrap: str,
) -> None:
    async def main() -> None:
        client = await millstream.connect_async(millstream_bootstrap)
        for make in (
            lambda: client.consumer("t"),
            lambda: client.subscription("t"),
            lambda: client.iterators("t", group="g"),
            client.iterator_calls,
            lambda: client.numbered_writer("t"),
        ):
            with pytest.raises(millstream.MillstreamError) as refused:
                await asyncio.to_thread(make)
            assert refused.value.code is millstream.ErrorCode.CLIENT_MISUSED
        await client.close()

    asyncio.run(main())
