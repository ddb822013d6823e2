"""Tests the flow control of a subscription: the window is never exceeded, and commits always open the gate."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.broker.push.flow_control import MARKS, AvailableWindow, FlowWindow, PartitionFlow, SubscriptionFlow
from millstream.model.ids import Offset

LANES = 3


class AnyReader(RuleBasedStateMachine):
    """Offers portions of any size and commits any part of them, and compares the flow with a simple model."""

    @initialize(messages=st.integers(1, 40), size_bytes=st.integers(MARKS, 4_000), share_percent=st.integers(1, 100))
    def begin(self, messages: int, size_bytes: int, share_percent: int) -> None:
        self.flow = SubscriptionFlow(FlowWindow(messages, size_bytes, share_percent))
        self.lanes = [PartitionFlow(Offset(0)) for _ in range(LANES)]
        self.portions: list[list[tuple[int, int, int]]] = [[] for _ in range(LANES)]
        self.committed = [0] * LANES
        self.due = 0
        self.closed = False

    @rule(lane=st.integers(0, LANES - 1), messages=st.integers(1, 30), size_bytes=st.integers(1, 3_000))
    def offer(self, lane: int, messages: int, size_bytes: int) -> None:
        outstanding, before = self.outstanding, self.flow.is_open
        admitted = self.flow.room() is not None and self.flow.admits(messages, size_bytes=size_bytes)
        if before and not self.flow.is_open:
            self.due = -(-outstanding.messages * self.flow.window.share_percent // 100)
        if not admitted:
            assert outstanding.messages, "with nothing outstanding everything fits"
            return
        assert before, "nothing passes a closed gate"
        begin = self.lanes[lane].position
        self.flow.sent(self.lanes[lane], Offset(begin + messages), size_bytes)
        self.portions[lane].append((begin, begin + messages, size_bytes))
        after, window = self.outstanding, self.flow.window
        fits = after.messages <= window.messages and after.size_bytes <= window.size_bytes
        assert fits or after == AvailableWindow(messages, size_bytes), (
            "only a single portion may be larger than the window"
        )

    @rule(lane=st.integers(0, LANES - 1), part=st.floats(0, 1))
    def commit(self, lane: int, part: float) -> None:
        before = self.outstanding.messages
        end = self.lanes[lane].position
        self.committed[lane] = max(self.committed[lane], round(part * end))
        self.flow.committed(self.lanes[lane], round(part * end))
        self.due -= before - self.outstanding.messages
        assert self.flow.is_open == (self.due <= 0), "open exactly when the share was committed"

    @rule()
    def commit_everything(self) -> None:
        for number, lane in enumerate(self.lanes):
            self.committed[number] = lane.position
            self.flow.committed(lane, lane.position)
        self.due = 0
        assert self.flow.room() == AvailableWindow(self.flow.window.messages, self.flow.window.size_bytes)

    @invariant()
    def what_is_counted_is_what_is_outstanding(self) -> None:
        if not hasattr(self, "flow"):
            return
        assert self.flow.messages == self.outstanding.messages
        assert self.flow.size_bytes >= self.outstanding.size_bytes, "bytes are never counted too few"

    @invariant()
    def what_is_remembered_is_bounded(self) -> None:
        if hasattr(self, "flow"):
            assert sum(lane.marks for lane in self.lanes) <= 2 * (MARKS + 2) + LANES

    @property
    def outstanding(self) -> AvailableWindow:
        messages = size_bytes = 0
        for portions, committed in zip(self.portions, self.committed, strict=True):
            for begin, end, size in portions:
                messages += max(0, end - max(begin, committed))
                size_bytes += size if end > committed else 0
        return AvailableWindow(messages, size_bytes)


TestAnyReader = AnyReader.TestCase


@pytest.mark.parametrize(("share_percent", "needed"), [(1, 1), (25, 3), (50, 5), (90, 9), (100, 10)])
def test_a_full_window_has_room_once_share_percent_of_it_is_committed(share_percent: int, needed: int) -> None:
    flow, lane = SubscriptionFlow(FlowWindow(10, 10_000, share_percent)), PartitionFlow(Offset(0))
    for end in range(1, 11):
        assert flow.room() == AvailableWindow(11 - end, 10_000 - 10 * (end - 1))
        flow.sent(lane, Offset(end), 10)
    assert flow.room() is None
    flow.committed(lane, needed - 1)
    assert flow.room() is None
    flow.committed(lane, needed)
    room = flow.room()
    assert room is not None
    assert room.messages == needed


def test_a_window_never_fills_when_the_reader_commits_in_time() -> None:
    flow, lane = SubscriptionFlow(FlowWindow(100, 10_000, 50)), PartitionFlow(Offset(0))
    for end in range(1, 1_000):
        assert flow.admits(1, size_bytes=10)
        flow.sent(lane, Offset(end), 10)
        flow.committed(lane, max(0, end - 50))


def test_a_batch_larger_than_the_window_is_sent_alone() -> None:
    flow, lane = SubscriptionFlow(FlowWindow(10, 1_000, 50)), PartitionFlow(Offset(0))
    assert flow.admits(1, size_bytes=10)
    flow.sent(lane, Offset(1), 10)
    assert not flow.admits(500, size_bytes=50_000)
    flow.committed(lane, 1)
    assert flow.admits(500, size_bytes=50_000)
    flow.sent(lane, Offset(501), 50_000)
    assert flow.room() is None
    flow.committed(lane, 251)
    assert flow.room() is None, "messages would fit again, bytes do not: nobody knows how many were in the first half"
    flow.committed(lane, 501)
    assert flow.room() == AvailableWindow(10, 1_000)


def test_skipped_offsets_take_no_window() -> None:
    flow, lane = SubscriptionFlow(FlowWindow(10, 1_000, 50)), PartitionFlow(Offset(0))
    flow.sent(lane, Offset(5), 10)
    lane.move(Offset(1_000))
    flow.sent(lane, Offset(1_003), 10)
    assert flow.messages == 8
    flow.committed(lane, 700)
    assert (flow.messages, flow.size_bytes) == (3, 10)
    flow.committed(lane, 1_003)
    assert (flow.messages, flow.size_bytes) == (0, 0)
