"""Implements the format "millstream" as a Spark data source. Each part is imported when Spark first uses it."""

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
"""Module that is loaded only in the process in which Spark offers filters to a reader."""


class MillstreamSource(DataSource):
    """Creates readers and writers for the format. Invalid options raise as soon as Spark constructs the object."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._chosen = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> "str | StructType":
        from millstream.spark.columns import source_schema

        options = source_options(self._chosen, streaming=True)  # Batch or stream? Unknown; streams accept more options.
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
        if overwrite and options.row_order is None:  # Mode complete: the rows are aggregates, so they were shuffled.
            options = replace(options, row_order=RowOrder.SORTED)
        _check_order(options)
        return StreamSink(options, schema)


def _sample(options: SourceOptions) -> list[bytes]:
    """Returns recent values of the topics, to infer their columns from."""
    from millstream.spark.connections import client_of
    from millstream.spark.values.sampling import sample

    return sample(client_of(options.bootstrap), options)


def _check_order(options: SinkOptions) -> None:
    """Raises INVALID_SETTING if `rowOrder` is not set.

    The hooks of a session set it from the query's plan. Without a session there is no plan to look at, and the wrong
    order loses rows when a batch is repeated.
    """
    if options.row_order is None:
        text = (
            "the option rowOrder is missing: set rowOrder=given if rows are read and changed one by one, or "
            "rowOrder=sorted if they are shuffled (groupBy, join, repartition). After a call of "
            "millstream.spark.session() it is derived from the query, except over Spark Connect and in declarative "
            "pipelines"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        text = 'a topic cannot be overwritten; use mode("append"), and delete the topic first to replace its messages'
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
