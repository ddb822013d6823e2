"""Decodes values in Arrow's IPC format. Each value is an IPC stream or file; each row in it becomes a row."""

from collections.abc import Sequence

import pyarrow as pa

_FILE = b"ARROW1"


class ArrowDecoder:
    """Decodes Arrow values. Columns are matched by name and cast without loss; missing columns are null."""

    def __init__(self, wanted: pa.StructType) -> None:
        self.type = wanted

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, list[int]]:
        found = [pa.nulls(1, self.type) if value is None else self._rows(value) for value in values.to_pylist()]
        return pa.concat_arrays(found), [len(each) for each in found]

    def _rows(self, value: bytes) -> pa.StructArray:
        table = _table(value)
        columns = [self._column(table, field) for field in self.type]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _column(self, table: pa.Table, field: pa.Field) -> pa.Array:
        if field.name not in table.column_names:
            return pa.nulls(table.num_rows, field.type)
        try:
            return table.column(field.name).combine_chunks().cast(field.type)
        except (KeyError, pa.ArrowException) as error:
            raise ValueError(f"column {field.name} cannot be cast to {field.type}: {error}") from None


def infer_arrow(values: Sequence[bytes]) -> pa.StructType:
    """Returns the columns of the last readable value. Raises ValueError if none can be read."""
    problem: ValueError | None = None
    for value in reversed(values):
        try:
            return pa.struct(list(_table(value).schema))
        except ValueError as error:
            problem = error
    raise problem or ValueError("there are no values")


def _table(value: bytes) -> pa.Table:
    try:
        source = pa.BufferReader(value)
        reader = pa.ipc.open_file(source) if value.startswith(_FILE) else pa.ipc.open_stream(source)
        table = reader.read_all()
        table.validate(full=True)
    except (EOFError, OSError, pa.ArrowException) as error:
        raise ValueError(f"not an Arrow IPC stream or file: {error}") from None
    return table
