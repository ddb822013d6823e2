"""Tests that the high watermark wakes each waiter once, in order and not too early."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.model.ids import LeaderEpoch, Offset
from millstream.partition.watermark import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Acknowledgement, Watermark


def acknowledge(watermark: Watermark, offset: int, acks: int = ACKS_ALL) -> Acknowledgement:
    acknowledgement = watermark.acknowledge(offset, acks=acks)
    assert acknowledgement is not None
    return acknowledgement


def advance(watermark: Watermark, offset: int) -> None:
    """Raise both ends, as on a single broker."""
    watermark.advance(own_flushed=Offset(offset), high_watermark=Offset(offset))


REFUSED = MillstreamError(ErrorCode.KAFKA_STORAGE_ERROR, "refused")


def test_an_acknowledgement_completes_once_the_high_watermark_passes_its_offset() -> None:
    watermark = Watermark(Offset(0), leader_epoch=LeaderEpoch(0))
    acknowledgement = acknowledge(watermark, 4)
    advance(watermark, 4)
    assert not acknowledgement.is_over
    advance(watermark, 5)
    assert (acknowledgement.is_over, acknowledgement.error) == (True, None)
    assert not watermark.waiting


def test_acks_1_waits_for_the_leader_and_acks_all_for_the_high_watermark() -> None:
    watermark, read = Watermark(Offset(0), leader_epoch=LeaderEpoch(0)), list[int]()
    to_all, to_leader = acknowledge(watermark, 2, ACKS_ALL), acknowledge(watermark, 2, ACKS_LEADER)
    late = acknowledge(watermark, 5, ACKS_LEADER)
    watermark.wait(Offset(2), lambda: read.append(2))
    watermark.advance(own_flushed=Offset(5), high_watermark=Offset(1))
    assert (to_leader.is_over, to_all.is_over, late.is_over, read) == (True, False, False, [])
    watermark.advance(own_flushed=Offset(5), high_watermark=Offset(3))
    assert (to_all.is_over, late.is_over, read) == (True, False, [2])
    assert {one.error for one in (to_all, to_leader)} == {None}
    watermark.fail(Offset(0), REFUSED)
    assert late.error is REFUSED


@pytest.mark.parametrize(("acks", "waits_from"), [(ACKS_NONE, None), (ACKS_LEADER, 5), (ACKS_ALL, 3)])
def test_a_write_waits_only_while_the_offset_for_its_acks_has_not_passed_it(acks: int, waits_from: int | None) -> None:
    watermark = Watermark(Offset(0), leader_epoch=LeaderEpoch(0))
    watermark.advance(own_flushed=Offset(5), high_watermark=Offset(3))
    waiting = [offset for offset in range(7) if watermark.acknowledge(offset, acks=acks) is not None]
    assert waiting == ([] if waits_from is None else list(range(waits_from, 7)))


def test_the_high_watermark_never_passes_the_leaders_own_end() -> None:
    with pytest.raises(AssertionError, match="in-sync"):
        Watermark(Offset(0), leader_epoch=LeaderEpoch(0)).advance(own_flushed=Offset(1), high_watermark=Offset(2))


def test_callbacks_run_when_added_before_or_after_the_acknowledgement() -> None:
    acknowledgement, called = Acknowledgement(0), list[int]()
    for number in range(3):
        acknowledgement.then(lambda _, number=number: called.append(number))  # type: ignore[misc]  # bound as default
    acknowledgement.wake()
    acknowledgement.then(lambda _: called.append(3))
    assert called == [0, 1, 2, 3]


@pytest.mark.parametrize("faulty", [0, 1])
def test_a_failed_callback_is_logged_and_others_are_called(faulty: int, caplog: pytest.LogCaptureFixture) -> None:
    acknowledgement, called = Acknowledgement(0), list[int]()

    def call(number: int) -> Callable[[Acknowledgement], None]:
        def callback(_: Acknowledgement) -> None:
            if number == faulty:
                raise ValueError("a fault in the test")
            called.append(number)

        return callback

    for number in range(3):
        acknowledgement.then(call(number))
    acknowledgement.wake()
    assert called == [number for number in range(3) if number != faulty]
    assert "a fault in the test" in caplog.text


def test_a_cancelled_waiter_does_not_affect_the_others() -> None:
    async def story() -> None:
        acknowledgement = Acknowledgement(0)

        async def wait() -> None:
            await acknowledgement

        impatient, patient = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        impatient.cancel()
        acknowledgement.wake()
        await patient
        assert impatient.cancelled()

    asyncio.run(story())


def test_a_failure_fails_acknowledgements_from_its_offset_on_and_wakes_no_reader() -> None:
    watermark, read = Watermark(Offset(0), leader_epoch=LeaderEpoch(0)), list[int]()
    early, late = acknowledge(watermark, 1), acknowledge(watermark, 2)
    watermark.wait(Offset(2), lambda: read.append(2))
    watermark.fail(Offset(2), REFUSED)
    assert (early.is_over, late.error, read) == (False, REFUSED, [])
    advance(watermark, 3)
    assert (early.is_over, early.error, read) == (True, None, [2])


def test_closing_wakes_readers_but_not_waiting_writers() -> None:
    watermark, read = Watermark(Offset(0), leader_epoch=LeaderEpoch(0)), list[int]()
    written = acknowledge(watermark, 0)
    watermark.wait(Offset(0), lambda: read.append(0))
    watermark.wake_readers()
    assert (read, written.is_over) == ([0], False)
    advance(watermark, 1)
    assert written.is_over


def test_a_truncation_ends_the_epoch_and_may_lower_the_high_watermark() -> None:
    watermark = Watermark(Offset(5), leader_epoch=LeaderEpoch(0))
    written = acknowledge(watermark, 7)
    watermark.truncated(Offset(3), REFUSED)
    assert (watermark.offset, written.error) == (3, REFUSED)
    watermark.truncated(Offset(9), REFUSED)
    assert watermark.offset == 3


_NAMES = ["all", "leader", "wait", "cancel", "advance", "flush", "fail", "close"]
_steps = st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(0, 8)), max_size=100)


class Model:
    """Checks each call as it comes."""

    def __init__(self) -> None:
        self.watermark = Watermark(Offset(0), leader_epoch=LeaderEpoch(0))
        self.waiting: dict[int, int] = {}
        self.cancels: list[tuple[int, Callable[[], None]]] = []
        self.leader_only: set[int] = set()
        self.order: list[int] = []
        self.is_failing = False
        self._next = 0

    def _expect(self, offset: int) -> int:
        self._next += 1
        self.waiting[self._next] = offset
        return self._next

    def all(self, ahead: int) -> None:
        self._acknowledge(self.watermark.offset + ahead, ACKS_ALL)

    def leader(self, ahead: int) -> None:
        self._acknowledge(self.watermark.own_flushed + ahead, ACKS_LEADER)

    def _acknowledge(self, offset: int, acks: int) -> None:
        number = self._expect(offset)
        self.leader_only |= {number} if acks == ACKS_LEADER else set()

        def ended(acknowledgement: Acknowledgement) -> None:
            end = self.watermark.own_flushed if acks == ACKS_LEADER else self.watermark.offset
            assert self.waiting.pop(number) == offset, "each exactly once"
            assert (acknowledgement.error is None) != self.is_failing
            assert self.is_failing or offset < end, "not before the end has passed its offset"
            self.order.append(offset)

        acknowledge(self.watermark, offset, acks).then(ended)

    def wait(self, ahead: int) -> None:
        number = self._expect(offset := self.watermark.offset + ahead)

        def woken() -> None:
            assert self.waiting.pop(number) == offset, "each exactly once"
            assert self.is_failing or offset < self.watermark.offset
            self.order.append(offset)

        self.cancels.append((number, self.watermark.wait(Offset(offset), woken)))

    def cancel(self, which: int) -> None:
        if self.cancels:
            number, cancel = self.cancels[which % len(self.cancels)]
            cancel()
            self.waiting.pop(number, None)

    def advance(self, ahead: int) -> None:
        """Raise the high watermark, if the leader is ahead of it."""
        self._raise(self.watermark.own_flushed, min(self.watermark.offset + ahead - 2, self.watermark.own_flushed))

    def flush(self, ahead: int) -> None:
        """Raise the leader's own end."""
        self._raise(self.watermark.own_flushed + ahead, self.watermark.offset)

    def finish(self) -> None:
        end = self.watermark.own_flushed + 100
        self._raise(end, end)

    def _raise(self, own_flushed: int, high_watermark: int) -> None:
        before = self.watermark.offset
        self.order.clear()
        self.watermark.advance(own_flushed=Offset(own_flushed), high_watermark=Offset(high_watermark))
        assert self.watermark.offset == max(before, high_watermark), "it never goes back"
        assert self.order == sorted(self.order)
        for number, offset in self.waiting.items():
            assert offset >= (own_flushed if number in self.leader_only else self.watermark.offset)

    def fail(self, ahead: int) -> None:
        self.is_failing = True
        self.watermark.fail(Offset(self.watermark.offset + ahead), REFUSED)
        self.is_failing = False

    def close(self, _: int) -> None:
        self.is_failing = True
        self.watermark.wake_readers()
        self.is_failing = False


@given(_steps)
def test_each_waiter_ends_once_and_after_its_offset_in_random_steps(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for name, number in steps:
        getattr(model, name)(number)
        assert model.watermark.waiting == len(model.waiting)
    model.finish()
    assert model.waiting == {}


def test_a_later_epoch_keeps_the_high_watermark_and_its_readers() -> None:
    watermark, read = Watermark(Offset(3), leader_epoch=LeaderEpoch(1)), list[int]()
    watermark.wait(Offset(4), lambda: read.append(4))
    watermark.begin_epoch(LeaderEpoch(2), own_flushed=Offset(4), high_watermark=Offset(4))
    assert (watermark.leader_epoch, watermark.offset, read) == (2, 4, [])
    advance(watermark, 5)
    assert read == [4]


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_begins_once_and_in_order(epoch: int) -> None:
    with pytest.raises(AssertionError, match="a leader epoch only increases"):
        Watermark(Offset(3), leader_epoch=LeaderEpoch(1)).begin_epoch(
            LeaderEpoch(epoch), own_flushed=Offset(3), high_watermark=Offset(3)
        )


def test_an_epoch_does_not_acknowledge_writes_of_the_one_before() -> None:
    watermark = Watermark(Offset(3), leader_epoch=LeaderEpoch(1))
    waiting = acknowledge(watermark, 3)
    with pytest.raises(AssertionError, match="earlier epoch"):
        watermark.begin_epoch(LeaderEpoch(2), own_flushed=Offset(4), high_watermark=Offset(4))
    lost = acknowledge(watermark, 3)
    watermark.truncated(Offset(3), REFUSED)
    watermark.begin_epoch(LeaderEpoch(2), own_flushed=Offset(3), high_watermark=Offset(3))
    assert (waiting.is_over, lost.error) == (False, REFUSED)
