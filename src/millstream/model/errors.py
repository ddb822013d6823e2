"""The one error table: a failure has the same name and number on every interface.

Numbers are Kafka's where Kafka has the failure; our own begin at 1000 and never reach a Kafka API key's answer.
A number that was once given out is never used for anything else.
"""

from enum import Enum
from typing import Any, Self


class ErrorCode(Enum):
    """(number, may be retried, what it means)."""

    UNKNOWN_SERVER_ERROR = (-1, False, "the broker met something unexpected; its log says what")
    NONE = (0, False, "no error")
    OFFSET_OUT_OF_RANGE = (1, False, "the offset is not within the partition")
    CORRUPT_MESSAGE = (2, True, "the batch's checksum or layout is wrong")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "there is no such topic or partition here")
    INVALID_FETCH_SIZE = (4, False, "the size asked for is not valid")
    LEADER_NOT_AVAILABLE = (5, True, "the partition has no leader at the moment")
    NOT_LEADER_OR_FOLLOWER = (6, True, "this broker does not lead the partition")
    REQUEST_TIMED_OUT = (7, True, "not finished in time; the outcome is unknown")
    MESSAGE_TOO_LARGE = (10, False, "the batch is larger than the topic allows")
    OFFSET_METADATA_TOO_LARGE = (12, False, "the text beside the committed offset is too long")
    NETWORK_EXCEPTION = (13, True, "the connection was lost before the answer came")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "the coordinator is still loading its state")
    COORDINATOR_NOT_AVAILABLE = (15, True, "there is no coordinator for this at the moment")
    NOT_COORDINATOR = (16, True, "this broker is not the coordinator of that")
    INVALID_TOPIC = (17, False, "the topic's name is not valid")
    RECORD_LIST_TOO_LARGE = (18, False, "the batch is larger than a segment may be")
    NOT_ENOUGH_REPLICAS = (19, True, "too few replicas are in sync to accept the write")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20, True, "too few replicas took the write; its outcome is open")
    INVALID_REQUIRED_ACKS = (21, False, "acks must be -1, 0 or 1")
    ILLEGAL_GENERATION = (22, False, "the member speaks for an older generation of its group")
    INCONSISTENT_GROUP_PROTOCOL = (23, False, "the member's protocols do not fit those of its group")
    INVALID_GROUP_ID = (24, False, "the group's name is not valid")
    UNKNOWN_MEMBER_ID = (25, False, "the group does not know this member")
    INVALID_SESSION_TIMEOUT = (26, False, "the session timeout is outside what the broker allows")
    REBALANCE_IN_PROGRESS = (27, False, "the group is sharing out its partitions; join again")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "the commit does not fit into one message")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "not allowed on this topic")
    GROUP_AUTHORIZATION_FAILED = (30, False, "not allowed on this group")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "not allowed on this cluster")
    INVALID_TIMESTAMP = (32, False, "the message's time is further off than the topic allows")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "the broker does not offer this way to log in")
    ILLEGAL_SASL_STATE = (34, False, "nobody asked for a login here")
    UNSUPPORTED_VERSION = (35, False, "this version of the request is not served")
    TOPIC_ALREADY_EXISTS = (36, False, "a topic of this name exists already")
    INVALID_PARTITIONS = (37, False, "the number of partitions is not valid")
    INVALID_REPLICATION_FACTOR = (38, False, "the replication factor is not valid")
    INVALID_REPLICA_ASSIGNMENT = (39, False, "the assignment of replicas is not valid")
    INVALID_CONFIG = (40, False, "a setting is unknown or its value is not valid")
    NOT_CONTROLLER = (41, True, "this broker is not the controller")
    INVALID_REQUEST = (42, False, "the request contradicts itself or the protocol")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False, "the message format cannot do this")
    POLICY_VIOLATION = (44, False, "a rule of this cluster forbids it")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False, "a batch before this one is missing")
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "this batch was stored before; where is no longer known")
    INVALID_PRODUCER_EPOCH = (47, False, "a newer producer with the same id has taken over")
    INVALID_TXN_STATE = (48, False, "the transaction is not in a state that allows this")
    INVALID_PRODUCER_ID_MAPPING = (49, False, "the producer id does not belong to this transactional id")
    INVALID_TRANSACTION_TIMEOUT = (50, False, "the transaction's timeout is longer than the broker allows")
    CONCURRENT_TRANSACTIONS = (51, True, "the producer's last transaction is still being finished")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "a newer coordinator has taken over")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "not allowed to use this transactional id")
    SECURITY_DISABLED = (54, False, "this broker checks no rights")
    KAFKA_STORAGE_ERROR = (56, True, "the broker's disk failed to read or write this partition")
    LOG_DIR_NOT_FOUND = (57, False, "there is no such data directory")
    UNKNOWN_PRODUCER_ID = (59, False, "the broker has forgotten this producer")
    REASSIGNMENT_IN_PROGRESS = (60, False, "the partition is being moved")
    NON_EMPTY_GROUP = (68, False, "the group still has members")
    GROUP_ID_NOT_FOUND = (69, False, "there is no such group")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "the broker does not have this fetch session")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "the fetch session is at another epoch")
    TOPIC_DELETION_DISABLED = (73, False, "this topic is not to be deleted")
    FENCED_LEADER_EPOCH = (74, True, "the caller knows an older leader epoch")
    UNKNOWN_LEADER_EPOCH = (75, True, "the caller knows a leader epoch this broker has not reached")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "the compression is not one the broker knows")
    MEMBER_ID_REQUIRED = (79, False, "join again with the member id of this answer")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "the preferred leader is away")
    GROUP_MAX_SIZE_REACHED = (81, False, "the group has as many members as it may have")
    FENCED_INSTANCE_ID = (82, False, "another member has taken over this static id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "nobody who could lead the partition is there")
    ELECTION_NOT_NEEDED = (84, True, "the partition has the leader it should have")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "the partition is not being moved")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "the group still reads this topic")
    INVALID_RECORD = (87, False, "a record breaks a rule of its topic")
    UNSTABLE_OFFSET_COMMIT = (88, True, "a transaction has not yet settled this offset")
    RESOURCE_NOT_FOUND = (91, False, "there is no such resource")
    DUPLICATE_RESOURCE = (92, False, "the resource exists, or was named, already")
    UNKNOWN_TOPIC_ID = (100, True, "there is no topic of this id here")
    INCONSISTENT_TOPIC_ID = (103, True, "the topic's id is another one than the session's")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "there is no such transactional id")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "the fetch session mixes topic names and ids")
    FENCED_MEMBER_EPOCH = (110, False, "the member speaks for an epoch that is not its own; join again")
    UNRELEASED_INSTANCE_ID = (111, False, "another member still holds this static id")
    UNSUPPORTED_ASSIGNOR = (112, False, "the broker has no such assignor")
    STALE_MEMBER_EPOCH = (113, False, "the member's epoch has moved on; ask with the new one")
    MISMATCHED_ENDPOINT_TYPE = (114, False, "this is the wrong kind of listener for the request")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "there is no such kind of listener")
    INVALID_REGULAR_EXPRESSION = (128, False, "the regular expression cannot be used")
    # Our own.
    VERSION_WINDOW = (1000, False, "client and broker are too many versions apart")
    PARTITION_QUARANTINED = (1001, False, "acknowledged data of this partition is damaged; see the broker's log")
    SHUTTING_DOWN = (1002, True, "the broker is being stopped")
    DATA_DIRECTORY_IN_USE = (1003, False, "another broker uses this data directory")
    DATA_DIRECTORY_MISSING = (1004, False, "a data directory is missing or is another one's")
    INVALID_SETTING = (1005, False, "a setting is unknown or its value is not valid")
    CATALOG_REFUSED = (1006, False, "the catalog is not this cluster's, or does not fit the data or this version")
    ADDRESS_UNAVAILABLE = (1007, False, "the address to listen on cannot be had")
    ROLE_IS_FINAL = (1008, False, "the connection has a role that does not allow this, and keeps it")
    CLIENT_CLOSED = (1009, False, "the client, or this part of it, is closed")
    CLIENT_MISUSED = (1010, False, "the client is used in a way that it does not allow")
    DUPLICATE_MESSAGE_ID = (1011, False, "messages of these ids were stored before; nothing was stored now")
    INVALID_MESSAGE_ID = (1012, False, "the message id is not valid")
    PRODUCER_FULL = (1015, False, "the producer holds as much as it may; put again when there is room")
    CLIENT_FAILED = (1016, False, "the client met something unexpected; its log says what")
    UNDECODABLE_VALUE = (1020, False, "a message's value is not what its reader was told it is")
    NOT_OWNER = (1030, False, "the client does not own this partition in its group now")
    INVALID_ITERATOR = (1031, False, "the iterator's signature or layout is wrong: no broker of this cluster made it")
    FOREIGN_ITERATOR = (1032, False, "the iterator is another client's, or another group's")
    ITERATOR_EXPIRED = (1033, False, "the iterator's time in flight is over; get it again")
    FENCED_ITERATOR = (1034, False, "a newer generation of the group has this partition; get an iterator again")
    ITERATOR_SETTLED = (1035, False, "the iterator was committed or issued again since")
    NOTHING_HANDED = (1036, False, "nothing of the iterator was handed on, so there is nothing to commit by that")
    NO_SUPERVISOR = (1040, False, "there is no supervisor here that could start brokers")
    INVALID_CLUSTER = (1041, False, "a cluster cannot be made like this")
    CLUSTER_EXISTS = (1042, False, "a cluster of this name exists already")
    UNKNOWN_CLUSTER = (1043, False, "there is no cluster of this name here")
    CLUSTER_NOT_STARTED = (1044, True, "brokers of the cluster did not come up")
    GATEWAY_FULL = (1045, True, "the gateway holds as much as it may; try again in a moment")
    NOT_INSTALLED = (1050, False, "a part of Millstream that has to be installed by itself is not there")
    PIPELINE_FAILED = (1051, False, "a pipeline, or one of its queries, failed")

    def __init__(self, number: int, retriable: bool, meaning: str) -> None:
        self.number = number
        self.retriable = retriable
        self.meaning = meaning

    @classmethod
    def of(cls, number: int) -> "ErrorCode":
        """The row with this number; a number we do not know is UNKNOWN_SERVER_ERROR."""
        return _BY_NUMBER.get(number, cls.UNKNOWN_SERVER_ERROR)


_BY_NUMBER = {row.number: row for row in ErrorCode}


class MillstreamError(Exception):
    """A failure of the table, with what it concerned."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(detail or code.meaning)
        self.code = code
        self.detail = detail or code.meaning

    def __str__(self) -> str:
        return f"{self.code.name}: {self.detail}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {self.detail!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes, also those whose classes are made from something else than a code."""
        return _rebuilt, (type(self), self.args, self.__dict__)

    @classmethod
    def from_number(cls, number: int, detail: str = "") -> Self:
        """The error a peer answered with a number and, perhaps, a text."""
        code = ErrorCode.of(number)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code.number:
            detail = f"error {number}: {detail}" if detail else f"error {number}"
        return cls(code, detail)


class FieldError(MillstreamError):
    """A failure of the caller's, that knows which field of what was asked it lies in."""

    def __init__(self, code: ErrorCode, detail: str, field: str) -> None:
        super().__init__(code, detail)
        self.field = field


def _rebuilt(kind: type[MillstreamError], args: tuple[Any, ...], state: dict[str, Any]) -> MillstreamError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error
