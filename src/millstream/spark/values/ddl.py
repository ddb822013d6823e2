"""Schemas as Spark's SQL writes them: where a source runs there is no Spark to read them, so no more is known of one
here than the names of its columns."""

import re

_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),:]|[^\s<>(),:`'\"]+")


def column_names(ddl: str) -> list[str]:
    """The names of the columns, without those of their parts."""
    names: list[str] = []
    depth = 0
    is_first = True
    for token in _TOKEN.findall(ddl):
        if is_first:
            names.append(token.strip("`").replace("``", "`") if token.startswith("`") else token)
        is_first = token == "," and depth == 0
        depth += (token in "<(") - (token in ">)")
    return names
