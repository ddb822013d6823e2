"""Defines the types of message values, and the formats in which consumers decode and producers encode them.

The type variables have defaults for type checkers only: `Consumer` without a parameter means `Consumer[Any]`.
"""

from collections.abc import Callable
from types import UnionType
from typing import TYPE_CHECKING, Any

PlainValue = bytes | bytearray | memoryview | str
"""A value that a producer without a value format takes; text is sent as UTF-8."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V")
    V_co = TypeVar("V_co", covariant=True, default=Any)
    V_contra = TypeVar("V_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")
    V_co = TypeVar("V_co", covariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)

Decoded = type[V] | Callable[[bytes], V]
"""A format that type checkers understand: a type, or a function of bytes that returns it."""

Encode = Callable[[V], PlainValue]
"""A format of a producer that type checkers understand, beside types: a function that returns bytes."""

Values = str | type | UnionType | Callable[[bytes], Any] | None
"""Value format: None or `bytes` (no decoding), "json", a type (`str` for UTF-8 text), or a function of bytes."""

EncodedValues = str | type | UnionType | Callable[[Any], PlainValue] | None
"""Value format of a producer: None or `bytes` (no encoding), "json", a type, or a function that returns bytes."""
