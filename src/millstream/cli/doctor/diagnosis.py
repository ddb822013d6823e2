"""Defines the results of `millstream doctor`."""

from typing import Literal, NamedTuple

Level = Literal["ok", "warning", "problem"]


class Diagnosis(NamedTuple):
    """One examined part of a broker. `advice` says what to do; it is empty if there is nothing to do."""

    level: Level
    subject: str
    text: str
    advice: str = ""
