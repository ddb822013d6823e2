"""Provides the compiled and the plain codec, so that every test can run with each of them."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from millstream.records import (
    arrow,
    batch,
    compaction,
    produced_batch,
    record_decoder,
    record_encoder,
    record_keys,
    record_walk,
)
from millstream.records.compiled import COMPILED


@dataclass(frozen=True)
class Codec:
    """The codec's modules, either all compiled or all plain."""

    encode: ModuleType
    decode: ModuleType
    keys: ModuleType
    produced_batch: ModuleType
    walk: ModuleType


def _plain(module: ModuleType) -> ModuleType:
    """Load the module's source as plain Python, under another name."""
    name = module.__name__.rpartition(".")[2]
    spec = importlib.util.spec_from_file_location(f"plain{name}", Path(batch.__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert not loaded.COMPILED
    return loaded


_MODULES = (record_encoder, record_decoder, record_keys, produced_batch, record_walk)
_PLAIN = Codec(*map(_plain, _MODULES))


@pytest.fixture
def plain() -> Codec:
    return _PLAIN


@pytest.fixture
def compiled() -> Codec:
    if not COMPILED:
        pytest.fail("the codec is not compiled: `make test` does it, or `python setup.py build_ext --inplace`")
    return Codec(*_MODULES)


@pytest.fixture(params=["plain", "compiled"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Codec:
    """Each codec in turn; the public functions use it."""
    chosen = request.getfixturevalue(request.param)
    assert isinstance(chosen, Codec)
    monkeypatch.setattr(batch, "encode_records", chosen.encode.encode_records)
    monkeypatch.setattr(batch, "decode_records", chosen.decode.decode_records)
    monkeypatch.setattr(compaction, "filter_records", chosen.keys.filter_records)
    monkeypatch.setattr(batch, "time_range", chosen.encode.time_range)
    monkeypatch.setattr(batch, "BatchRunDecoder", chosen.decode.BatchRunDecoder)
    monkeypatch.setattr(arrow, "BatchRunDecoder", chosen.decode.BatchRunDecoder)
    monkeypatch.setattr(arrow, "RecordSizes", chosen.decode.RecordSizes)
    monkeypatch.setattr(arrow, "RecordColumns", chosen.decode.RecordColumns)
    monkeypatch.setattr(arrow, "ColumnSource", chosen.encode.ColumnSource)
    monkeypatch.setattr(arrow, "TableEncoder", chosen.encode.TableEncoder)
    return chosen
