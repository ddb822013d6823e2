"""The rows of the dispatch table that deal with groups."""

from penstock.broker.table import Row


def group_rows() -> list[Row]:
    return []
