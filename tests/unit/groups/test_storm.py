"""Tests two hundred members that join, lose their connections and rejoin at the same time."""

from random import Random

from builders.groups.machine import Driver, offering, subscription
from millstream.coordination.effects import Token
from millstream.groups.responses import JoinResponse, SyncResponse
from millstream.model.errors import ErrorCode

MEMBERS = 200
SETTLED = 10
"""Number of rounds within which the group must be stable after the last member has joined."""


class Client:
    """A consumer that follows the protocol and records the errors that it gets."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.topics = subscription(f"t{number % 7}")
        self.member_id = ""
        self.joined: JoinResponse | None = None
        self.assignment: bytes | None = None
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.errors: list[ErrorCode] = []

    def step(self) -> None:
        """Processes the latest answer, and sends the next request."""
        if self.join_token is not None:
            self._look_at_join()
        elif self.sync_token is not None:
            self._look_at_sync()
        elif self.assignment is None:
            self._join()
        else:
            assert self.joined is not None
            self._heed(self.driver.heartbeat(self.joined).error)

    def _join(self) -> None:
        protocols = offering("range", "sticky", metadata=self.topics)
        self.join_token = self.driver.send_join(self.member_id, protocols=protocols, knows_member_id_required=True)

    def _look_at_join(self) -> None:
        joined = self.driver.answers.get(self.join_token or 0)
        if joined is None:
            return
        assert isinstance(joined, JoinResponse)
        self.join_token = None
        if joined.error is ErrorCode.NONE:
            self.joined, self.member_id = joined, joined.member_id
            self.sync_token = self.driver.send_sync(joined)
        elif joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        else:
            self._heed(joined.error)

    def _look_at_sync(self) -> None:
        synced = self.driver.answers.get(self.sync_token or 0)
        if synced is None:
            return
        assert isinstance(synced, SyncResponse)
        self.sync_token = None
        self.assignment = synced.assignment if synced.error is ErrorCode.NONE else None
        self._heed(synced.error)

    def _heed(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        self.errors.append(error)
        self.assignment = None
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def cut_off(self) -> None:
        """Loses the connection; the client then repeats the pending request."""
        self.join_token = self.sync_token = None
        self.assignment = None


def rounds(driver: Driver, clients: list[Client], random: Random, how_many: int) -> None:
    for _ in range(how_many):
        for client in random.sample(clients, len(clients)):
            client.step()
        driver.pass_time(500)


def test_two_hundred_members_settle_in_one_generation_after_disconnects() -> None:
    random = Random(848)
    driver = Driver(initial_rebalance_delay_ms=100)
    clients = [Client(driver, number) for number in range(MEMBERS)]
    for coming in range(0, MEMBERS, 40):
        rounds(driver, clients[: coming + 40], random, 3)
        for client in random.sample(clients[: coming + 40], 10):
            client.cut_off()
    rounds(driver, clients, random, SETTLED)
    described = driver.describe()
    assert (described.state, len(described.members)) == ("Stable", MEMBERS)
    assert {client.assignment for client in clients} == {client.member_id.encode() for client in clients}
    assert {client.joined.generation for client in clients if client.joined} == {described.generation}
    assert not any(ErrorCode.UNKNOWN_MEMBER_ID in client.errors for client in clients)
    assert driver.waiting == {}


def test_the_remaining_members_continue_when_half_of_them_vanish() -> None:
    random = Random(1)
    driver = Driver(initial_rebalance_delay_ms=100)
    clients = [Client(driver, number) for number in range(MEMBERS)]
    rounds(driver, clients, random, SETTLED)
    left = clients[::2]
    for _ in range(60):
        rounds(driver, left, random, 1)
    assert len(driver.describe().members) == MEMBERS // 2
    assert driver.state() == "Stable"
    assert not any(ErrorCode.UNKNOWN_MEMBER_ID in client.errors for client in left)
