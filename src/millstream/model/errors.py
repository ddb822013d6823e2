"""Defines the one error table: a failure has the same name and number on every interface.

A failure that Kafka has keeps Kafka's number. Millstream's own numbers begin at 1000, which no Kafka error reaches.
The number of a removed failure is never reused.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Self, cast


class ErrorCode(Enum):
    """A failure. Each row is (number, retriable, meaning)."""

    UNKNOWN_SERVER_ERROR = (-1, False, "the broker hit an unexpected error; see the broker's log")
    NONE = (0, False, "no error")
    OFFSET_OUT_OF_RANGE = (1, False, "the offset is outside the partition's log")
    CORRUPT_MESSAGE = (2, True, "the record batch has a wrong checksum or an invalid layout")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "this broker has no such topic or partition")
    INVALID_FETCH_SIZE = (4, False, "the requested fetch size is not valid")
    LEADER_NOT_AVAILABLE = (5, True, "the partition has no leader at the moment")
    NOT_LEADER_OR_FOLLOWER = (6, True, "this broker does not lead the partition")
    REQUEST_TIMED_OUT = (7, True, "the request timed out; its outcome is unknown")
    MESSAGE_TOO_LARGE = (10, False, "the record batch is larger than the topic's max.message.bytes")
    OFFSET_METADATA_TOO_LARGE = (12, False, "the metadata of the committed offset is too long")
    NETWORK_EXCEPTION = (13, True, "the broker is unreachable, or the connection was lost before the response")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "the coordinator is still loading its state; retry")
    COORDINATOR_NOT_AVAILABLE = (15, True, "the coordinator is not available at the moment; retry")
    NOT_COORDINATOR = (16, True, "this broker is not the coordinator of this group or transactional id")
    INVALID_TOPIC = (17, False, "the topic's name is not valid")
    RECORD_LIST_TOO_LARGE = (18, False, "the record batch is larger than the maximum segment size")
    NOT_ENOUGH_REPLICAS = (19, True, "too few in-sync replicas to accept the write; nothing was stored")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20, True, "too few in-sync replicas stored the write; its outcome is unknown")
    INVALID_REQUIRED_ACKS = (21, False, "acks must be -1, 0 or 1")
    ILLEGAL_GENERATION = (22, False, "the member's generation is not the group's current one; join again")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "the member supports no assignor or protocol type of its group")
    INVALID_GROUP_ID = (24, False, "the group id is not valid")
    UNKNOWN_MEMBER_ID = (25, False, "the group has no member with this id; join again")
    INVALID_SESSION_TIMEOUT = (26, False, "the session timeout is outside the broker's limits")
    REBALANCE_IN_PROGRESS = (27, False, "the group is rebalancing; join again")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "the offset commit is too large for one message")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "not allowed on this topic")
    GROUP_AUTHORIZATION_FAILED = (30, False, "not allowed on this group")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "not allowed on this cluster")
    INVALID_TIMESTAMP = (32, False, "the timestamp differs from the broker's clock by more than the topic allows")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "the broker does not support this SASL mechanism")
    ILLEGAL_SASL_STATE = (34, False, "the broker did not expect a SASL request on this connection")
    UNSUPPORTED_VERSION = (35, False, "the broker does not support this version of the request")
    TOPIC_ALREADY_EXISTS = (36, False, "a topic of this name already exists")
    INVALID_PARTITIONS = (37, False, "the number of partitions is not valid")
    INVALID_REPLICATION_FACTOR = (38, False, "the replication factor is not valid")
    INVALID_REPLICA_ASSIGNMENT = (39, False, "the assignment of replicas is not valid")
    INVALID_CONFIG = (40, False, "a topic, group or broker setting is unknown or its value is not valid")
    NOT_CONTROLLER = (41, True, "this broker is not the controller")
    INVALID_REQUEST = (42, False, "the request is not valid")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False, "the message format does not support this operation")
    POLICY_VIOLATION = (44, False, "a policy of this cluster forbids the operation")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "the sequence number is not the next one; an earlier batch is missing")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "the batch was stored before; its offset is no longer known")
    INVALID_PRODUCER_EPOCH = (47, False, "a newer producer with the same id has fenced this one")
    INVALID_TXN_STATE = (48, False, "the transaction is not in a state that allows this")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "the producer id does not belong to this transactional id")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "the transaction's timeout is longer than the broker allows")
    CONCURRENT_TRANSACTIONS = (51, True, "the producer's previous transaction is still completing; retry")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "a newer transaction coordinator has fenced this one")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "not allowed to use this transactional id")
    SECURITY_DISABLED = (54, False, "this broker has no authorization enabled")
    KAFKA_STORAGE_ERROR = (56, True, "the broker's disk failed to read or write this partition")
    LOG_DIR_NOT_FOUND = (57, False, "the data directory does not exist")
    UNKNOWN_PRODUCER_ID = (59, False, "the broker has no state of this producer id any more")
    REASSIGNMENT_IN_PROGRESS = (60, False, "a reassignment of the partition is in progress")
    NON_EMPTY_GROUP = (68, False, "the group still has members")
    GROUP_ID_NOT_FOUND = (69, False, "the group does not exist")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "the broker does not have this fetch session")
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "the request's fetch session epoch differs from the broker's; start a new session",
    )
    TOPIC_DELETION_DISABLED = (73, False, "this topic cannot be deleted")
    FENCED_LEADER_EPOCH = (74, True, "the request's leader epoch is older than the broker's; refresh the metadata")
    UNKNOWN_LEADER_EPOCH = (75, True, "the request's leader epoch is newer than the broker's; retry")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "the broker does not support this compression")
    MEMBER_ID_REQUIRED = (79, False, "join again with the member id from this response")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "the preferred leader is not available")
    GROUP_MAX_SIZE_REACHED = (81, False, "the group has reached its maximum number of members or bytes of member data")
    FENCED_INSTANCE_ID = (82, False, "another member has joined with the same group.instance.id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "no eligible leader of the partition is available")
    ELECTION_NOT_NEEDED = (84, True, "the partition already has its preferred leader")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "no reassignment of the partition is in progress")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "the group is still subscribed to this topic")
    INVALID_RECORD = (87, False, "a record violates a rule of its topic")
    UNSTABLE_OFFSET_COMMIT = (88, True, "an open transaction may still change this committed offset; retry")
    RESOURCE_NOT_FOUND = (91, False, "the resource does not exist")
    DUPLICATE_RESOURCE = (92, False, "the resource already exists, or the request names it twice")
    UNKNOWN_TOPIC_ID = (100, True, "this broker has no topic with this id")
    INCONSISTENT_TOPIC_ID = (103, True, "the topic's id differs from the one in the fetch session")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "the transactional id does not exist")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "the fetch session mixes topic names and ids")
    FENCED_MEMBER_EPOCH = (110, False, "the member's epoch is not its current one; join again")
    UNRELEASED_INSTANCE_ID = (111, False, "another member still uses this group.instance.id")
    UNSUPPORTED_ASSIGNOR = (112, False, "the broker has no such assignor")
    STALE_MEMBER_EPOCH = (113, False, "the member's epoch is out of date; retry with the current one")
    MISMATCHED_ENDPOINT_TYPE = (114, False, "the request was sent to the wrong type of listener")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "this type of listener is not supported")
    INVALID_REGULAR_EXPRESSION = (128, False, "the regular expression is not valid")
    # Millstream's own.
    VERSION_WINDOW = (1000, False, "client and broker are too many versions apart")
    PARTITION_QUARANTINED = (1001, False, "acknowledged data of this partition is damaged; see the broker's log")
    SHUTTING_DOWN = (1002, True, "the broker is shutting down")
    DATA_DIRECTORY_IN_USE = (1003, False, "another broker uses this data directory")
    DATA_DIRECTORY_MISSING = (1004, False, "a data directory is missing or belongs to another broker")
    INVALID_SETTING = (1005, False, "a setting is unknown or its value is not valid")
    CATALOG_REFUSED = (1006, False, "the catalog belongs to another cluster or does not match the data or this version")
    ADDRESS_UNAVAILABLE = (1007, False, "cannot bind the listen address")
    ROLE_IS_FINAL = (1008, False, "the connection's role (producer or consumer) does not permit this request")
    CLIENT_CLOSED = (1009, False, "the client, producer, consumer or subscription is closed")
    CLIENT_MISUSED = (1010, False, "the client does not allow this call here or in its current state")
    DUPLICATE_MESSAGE_ID = (1011, False, "messages with these ids are already stored; this write stored nothing")
    INVALID_MESSAGE_ID = (1012, False, "the message id is not valid")
    PRODUCER_FULL = (1015, False, "the producer's buffer is full; retry when there is room")
    CLIENT_FAILED = (1016, False, "the client hit an unexpected error; see its log")
    UNDECODABLE_VALUE = (1020, False, "the value cannot be decoded with the configured format")
    NOT_OWNER = (1030, False, "the client does not own this partition in its group at the moment")
    INVALID_ITERATOR = (1031, False, "the iterator's signature or layout is wrong; no broker of this cluster issued it")
    FOREIGN_ITERATOR = (1032, False, "the iterator belongs to another client or another group")
    ITERATOR_EXPIRED = (1033, False, "the iterator's time in flight has expired; get it again")
    FENCED_ITERATOR = (1034, False, "a newer generation of the group owns the partition; get an iterator again")
    ITERATOR_SETTLED = (1035, False, "the iterator has been committed or issued again")
    NOTHING_DELIVERED = (1036, False, "the iterator has no delivered messages to commit")
    NO_SUPERVISOR = (1040, False, "this broker has no supervisor to start other brokers")
    INVALID_CLUSTER = (1041, False, "the cluster cannot be created with these settings")
    CLUSTER_EXISTS = (1042, False, "a cluster of this name already exists")
    UNKNOWN_CLUSTER = (1043, False, "a cluster of this name does not exist")
    CLUSTER_NOT_STARTED = (1044, True, "some brokers of the cluster did not start")
    GATEWAY_FULL = (1045, True, "the gateway has reached a limit on memory or requests; retry in a moment")
    NOT_INSTALLED = (1050, False, "an optional part of Millstream is not installed")
    PIPELINE_FAILED = (1051, False, "a pipeline, or one of its queries, failed")
    UNDECODABLE_BATCH = (1052, False, "the records of a stored batch cannot be decoded")
    QUERY_QUEUE_FULL = (1053, True, "too many SQL queries run or wait on the broker; retry in a moment")
    RESPONSE_TOO_LARGE = (1054, False, "a message is too large for the response of this gateway")

    def __init__(self, number: int, retriable: bool, meaning: str) -> None:
        self.number = number
        self.retriable = retriable
        self.meaning = meaning

    @classmethod
    def of(cls, number: int) -> "ErrorCode":
        """The row with this number, or UNKNOWN_SERVER_ERROR if the table has none."""
        return _BY_NUMBER.get(number, cls.UNKNOWN_SERVER_ERROR)


_BY_NUMBER = {row.number: row for row in ErrorCode}


class MillstreamError(Exception):
    """A failure of the table, with a detail that names what failed and why.

    Codes that applications handle alike share a subclass: `MillstreamError(code)` makes an object of that subclass.
    """

    def __new__(cls, *arguments: object, **_: object) -> Self:
        code = arguments[0] if arguments else None
        if cls is MillstreamError and code in _CLASSES:
            return cast(Self, super().__new__(_CLASSES[cast(ErrorCode, code)]))
        return super().__new__(cls)

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(detail or code.meaning)
        self.code = code
        self.detail = detail or code.meaning

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.code.retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.detail}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {self.detail!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the error from its attributes, because subclasses may take other arguments than code and detail."""
        return _rebuilt, (type(self), self.args, self.__dict__)

    @classmethod
    def from_number(cls, number: int, detail: str = "") -> Self:
        """The error for a number that a peer sent, perhaps with a text."""
        code = ErrorCode.of(number)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code.number:
            detail = f"error {number}: {detail}" if detail else f"error {number}"
        return cls(code, detail)


class UnreachableError(MillstreamError):
    """No connection to a broker could be opened, or it was lost before the response arrived."""


class RequestTimeoutError(MillstreamError):
    """The request was not answered within its timeout."""


class NotAuthorizedError(MillstreamError):
    """The client does not have the right that the request requires."""


class UnknownTopicError(MillstreamError):
    """The topic or the partition does not exist."""


class UnknownGroupError(MillstreamError):
    """The group does not exist."""


class InvalidArgumentError(MillstreamError):
    """An argument, a name or a setting is not valid. Nothing was done."""


class StorageError(MillstreamError):
    """The broker's disk failed, or the data of the partition is damaged."""


class UnreadableError(MillstreamError):
    """A reader cannot return messages: their batch cannot be decoded, or a message is too large for the response."""

    def __init__(
        self,
        code: ErrorCode,
        detail: str = "",
        place: tuple[str, int] = ("", -1),
        *,
        offset: int = -1,
        next_offset: int = -1,
    ) -> None:
        super().__init__(code, detail)
        self.topic, self.partition = place
        self.offset = offset
        """The first offset that cannot be read; -1 if it is not known."""
        self.next_offset = next_offset
        """The offset after these messages, at which a reader can continue."""


class ClosedError(MillstreamError):
    """The client, producer or consumer is closed."""


_CLASSES: Mapping[ErrorCode, type[MillstreamError]] = {
    ErrorCode.NETWORK_EXCEPTION: UnreachableError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimeoutError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorizedError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorizedError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorizedError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorizedError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.GROUP_ID_NOT_FOUND: UnknownGroupError,
    ErrorCode.INVALID_TOPIC: InvalidArgumentError,
    ErrorCode.INVALID_REQUIRED_ACKS: InvalidArgumentError,
    ErrorCode.INVALID_GROUP_ID: InvalidArgumentError,
    ErrorCode.INVALID_TIMESTAMP: InvalidArgumentError,
    ErrorCode.INVALID_PARTITIONS: InvalidArgumentError,
    ErrorCode.INVALID_REPLICATION_FACTOR: InvalidArgumentError,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: InvalidArgumentError,
    ErrorCode.INVALID_CONFIG: InvalidArgumentError,
    ErrorCode.INVALID_REQUEST: InvalidArgumentError,
    ErrorCode.INVALID_REGULAR_EXPRESSION: InvalidArgumentError,
    ErrorCode.INVALID_SETTING: InvalidArgumentError,
    ErrorCode.INVALID_MESSAGE_ID: InvalidArgumentError,
    ErrorCode.INVALID_CLUSTER: InvalidArgumentError,
    ErrorCode.KAFKA_STORAGE_ERROR: StorageError,
    ErrorCode.PARTITION_QUARANTINED: StorageError,
    ErrorCode.UNDECODABLE_BATCH: UnreadableError,
    ErrorCode.RESPONSE_TOO_LARGE: UnreadableError,
    ErrorCode.CLIENT_CLOSED: ClosedError,
}
"""The subclass that `MillstreamError(code)` makes."""


class FieldError(MillstreamError):
    """An error in one field of a request; `field` names it."""

    def __init__(self, code: ErrorCode, detail: str, field: str) -> None:
        super().__init__(code, detail)
        self.field = field


def _rebuilt(kind: type[MillstreamError], args: tuple[Any, ...], state: dict[str, Any]) -> MillstreamError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error
