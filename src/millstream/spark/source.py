"""The format "millstream", as Spark finds it. Each part is imported where Spark asks for it."""

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.options import RowOrder, SinkOptions, SourceOptions, parse_options, sink_options, source_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""The process that asks a reader to take filters is the one that runs this module."""


class MillstreamSource(DataSource):
    """What is wrong with the options is raised where they are given."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._chosen = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> "str | StructType":
        from millstream.spark.columns import source_schema

        options = source_options(self._chosen, streaming=True)  # It is not known yet; more is allowed to streams.
        return source_schema(options.values, partial(_sample, options), headers=self._chosen["includeHeaders"])

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from millstream.spark.columns import check_schema
        from millstream.spark.reading.reader import BatchReader, PushingReader

        options = source_options(self._chosen, streaming=False)
        check_schema(schema, options.values)
        return PushingReader(options, schema) if _PUSHING in sys.modules else BatchReader(options, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802  # Spark's name
        from millstream.spark.columns import check_schema
        from millstream.spark.reading.stream_reader import StreamReader

        options = source_options(self._chosen, streaming=True)
        check_schema(schema, options.values)
        return StreamReader(options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from millstream.spark.writing.sink import BatchSink

        _only_append(overwrite)
        options = sink_options(self._chosen, streaming=False)
        if options.txn_id is not None:
            _check_order(options)
        return BatchSink(options, schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        from millstream.spark.writing.sink import StreamSink

        options = sink_options(self._chosen, streaming=True)
        if overwrite and options.row_order is None:  # Mode complete: these are aggregates, which were shuffled.
            options = replace(options, row_order=RowOrder.SORTED)
        _check_order(options)
        return StreamSink(options, schema)


def _sample(options: SourceOptions) -> list[bytes]:
    from millstream.spark.connections import client_of
    from millstream.spark.values.sampling import sample

    return sample(client_of(options.bootstrap), options)


def _check_order(options: SinkOptions) -> None:
    """Sessions find out from the query's plan what was not said; here there is no plan to look at, and the wrong one
    loses rows when a batch is repeated."""
    if options.row_order is None:
        text = (
            "the option rowOrder is missing: say rowOrder=given where rows are read and changed one by one, or "
            "rowOrder=sorted where they are shuffled (groupBy, join, repartition). After millstream.spark.session() "
            "was called it is found out from the query, but not over Spark Connect or in declarative pipelines"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        text = 'a topic cannot be overwritten; write with mode("append"), and delete the topic before if that is meant'
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
