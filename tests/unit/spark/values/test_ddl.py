"""The names of columns in a schema of Spark's SQL."""

import pytest

from millstream.spark.values.ddl import column_names


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("id BIGINT", ["id"]),
        ("id BIGINT, name STRING NOT NULL COMMENT 'a, b'", ["id", "name"]),
        ("a:int,b:struct<c:int,d:array<string>>,e decimal(10,2)", ["a", "b", "e"]),
        ("`a b` INT, `c``d` MAP<STRING, STRUCT<x: INT, y: INT>>", ["a b", "c`d"]),
        ("", []),
    ],
)
def test_names_are_found_whatever_the_types_are(ddl: str, names: list[str]) -> None:
    assert column_names(ddl) == names
