"""Extracts column names from a DDL schema.

A source runs in a process without Spark's DDL parser, so only the names are known there.
"""

import re

_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),:]|[^\s<>(),:`'\"]+")


def column_names(ddl: str) -> list[str]:
    """Returns the names of the top-level columns."""
    names: list[str] = []
    depth = 0
    is_first = True
    for token in _TOKEN.findall(ddl):
        if is_first:
            names.append(token.strip("`").replace("``", "`") if token.startswith("`") else token)
        is_first = token == "," and depth == 0
        depth += (token in "<(") - (token in ">)")
    return names
