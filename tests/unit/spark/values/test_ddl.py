"""Tests the extraction of column names from DDL schemas."""

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
def test_column_names_are_extracted_for_all_kinds_of_types(ddl: str, names: list[str]) -> None:
    assert column_names(ddl) == names
