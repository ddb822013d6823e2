"""Tests settings tables: conversion to flags, pairs, and ignored variables."""

import logging
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from millstream.cli.process_flags import ProcessFlags
from millstream.gateway.settings import TABLE as GATEWAY
from millstream.model.errors import MillstreamError
from millstream.node.settings import TABLE as BROKER
from millstream.process.logs import fields_of
from millstream.process.settings import SECRET, SettingsTable


class Few(Struct, frozen=True, kw_only=True):
    names: Annotated[tuple[str, ...], Meta(description="Some names.")] = ("a",)
    pairs: Annotated[dict[str, str], Meta(description="Some pairs.")] = {}
    is_on: Annotated[bool, Meta(description="A truth.")] = True
    size: Annotated[int, Meta(description="A number.")] = 0


FEW = SettingsTable(Few, "FEW_")


@pytest.mark.parametrize(
    "settings",
    [Few(), Few(names=("b", "c"), pairs={"x": "1,2", "y": "3"}, is_on=False, size=-1), Few(size=7)],
)
def test_settings_converted_to_flags_are_parsed_back(settings: Few) -> None:
    assert ProcessFlags(FEW).plain_settings(FEW.as_flags(settings)) == settings


def test_pairs_are_parsed_from_a_toml_table_and_from_text_with_semicolons() -> None:
    expected = Few(pairs={"x": "1", "y": "2"})
    assert FEW.load({}, {}, ("f.toml", '[pairs]\nx = "1"\ny = "2"\n')) == expected
    assert FEW.load({}, {"FEW_PAIRS": "x=1; y=2"}) == expected


@pytest.mark.parametrize(
    ("text", "why"), [("x", "expected name=value"), ("=1", "expected name=value"), ("x=1;x=2", "x is given twice")]
)
def test_invalid_pairs_are_refused(text: str, why: str) -> None:
    with pytest.raises(MillstreamError, match=why):
        FEW.load({"pairs": text}, {})


def test_broker_and_gateway_ignore_each_others_variables() -> None:
    environment = {"MILLSTREAM_GATEWAY_DRAIN_MS": "1s", "MILLSTREAM_NODE_ID": "7", "MILLSTREAM_PARENT": "1"}
    assert BROKER.load({}, environment).node_id == 7
    assert GATEWAY.load({}, environment).drain_ms == 1_000


KUBERNETES = {
    "MILLSTREAM_SERVICE_HOST": "10.0.0.1",
    "MILLSTREAM_SERVICE_PORT": "9092",
    "MILLSTREAM_SERVICE_PORT_KAFKA": "9092",
    "MILLSTREAM_PORT": "tcp://10.0.0.1:9092",
    "MILLSTREAM_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "MILLSTREAM_PORT_9092_TCP_PROTO": "tcp",
    "MILLSTREAM_PORT_9092_TCP_PORT": "9092",
    "MILLSTREAM_PORT_9092_TCP_ADDR": "10.0.0.1",
    "MILLSTREAM_KAFKA_PORT": "tcp://10.0.0.2:9092",
    "MILLSTREAM_GATEWAY_SERVICE_HOST": "10.0.0.3",
    "MILLSTREAM_GATEWAY_HTTP_PORT": "tcp://10.0.0.3:8080",
    "MILLSTREAM_GATEWAY_PORT_8080_TCP_ADDR": "10.0.0.3",
}


def test_variables_that_kubernetes_injects_for_a_service_are_ignored() -> None:
    assert BROKER.load({}, KUBERNETES).kafka_port == 9092
    assert GATEWAY.load({}, KUBERNETES).http_port == 8080


@pytest.mark.parametrize(
    ("variable", "value", "meant"),
    [
        ("MILLSTREAM_KAFKA_PROT", "9092", "MILLSTREAM_KAFKA_PORT"),
        ("MILLSTREAM_PORT", "9092", "MILLSTREAM_"),
        ("MILLSTREAM_NODE", "tcp", "MILLSTREAM_NODE_ID"),
    ],
)
def test_unknown_variable_is_refused_when_its_name_resembles_a_setting(variable: str, value: str, meant: str) -> None:
    with pytest.raises(MillstreamError, match=f"variable {variable}; did you mean {meant}"):
        BROKER.load({}, {variable: value})


def test_changed_settings_are_logged_with_their_source_and_masked_secrets(caplog: pytest.LogCaptureFixture) -> None:
    class Guarded(Struct, frozen=True, kw_only=True):
        names: Annotated[tuple[str, ...], Meta(description="Some names.")] = ("a",)
        size: Annotated[int, Meta(description="A number.")] = 0
        other: Annotated[int, Meta(description="Another number.")] = 0
        password: Annotated[str, SECRET, Meta(description="A secret.")] = ""

    table = SettingsTable(Guarded, "GUARDED_")
    settings = table.load({"size": "3"}, {"GUARDED_PASSWORD": "hunter2"}, ("f.toml", 'names = ["b", "c"]\nsize = 1'))
    with caplog.at_level(logging.INFO):
        table.log_changed(logging.getLogger("millstream.test"), settings)
    assert [fields_of(record) for record in caplog.records] == [
        {"setting": "names", "value": "b,c", "source": "file f.toml"},
        {"setting": "size", "value": "3", "source": "--size"},
        {"setting": "password", "value": "***", "source": "environment variable GUARDED_PASSWORD"},
    ]
    assert "hunter2" not in caplog.text


def test_a_switched_off_port_is_logged_as_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        BROKER.log_changed(logging.getLogger("millstream.test"), BROKER.load({"grpc_port": "off"}, {}))
    assert [fields_of(record) for record in caplog.records] == [
        {"setting": "grpc_port", "value": "off", "source": "--grpc-port"}
    ]
