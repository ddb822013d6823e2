"""The rows of the dispatch table that administer topics, settings and the broker."""

from penstock.broker.table import Row


def admin_rows() -> list[Row]:
    return []
