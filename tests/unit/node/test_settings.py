"""Tests the broker's settings: the precedence of their sources, units, and errors."""

import pytest

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.node.settings import FIELDS, BrokerSettings, load


def refusal(**sources: object) -> str:
    """Returns the error text for wrong settings."""
    flags = sources.get("flags", {})
    environment = sources.get("environment", {})
    config = sources.get("config")
    with pytest.raises(MillstreamError) as raised:
        load(flags, environment, config)  # type: ignore[arg-type]  # the sources are typed at each caller's literal
    assert raised.value.code is ErrorCode.INVALID_SETTING
    return raised.value.detail


def test_settings_without_a_source_have_their_defaults() -> None:
    assert load({}, {}) == BrokerSettings()


def test_a_flag_overrides_the_environment_which_overrides_the_file() -> None:
    file = ("broker.toml", "kafka_port = 1\noperator_port = 1\nnode_id = 1\n")
    environment = {"MILLSTREAM_KAFKA_PORT": "2", "MILLSTREAM_OPERATOR_PORT": "2"}
    settings = load({"kafka_port": "3"}, environment, file)
    assert (settings.kafka_port, settings.operator_port, settings.node_id) == (3, 2, 1)


def test_a_flag_that_was_not_given_does_not_override_other_sources() -> None:
    assert load({"kafka_port": None}, {"MILLSTREAM_KAFKA_PORT": "2"}).kafka_port == 2


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention_ms", "7d", 604_800_000),
        ("retention_ms", "1.5h", 5_400_000),
        ("retention_ms", "none", -1),
        ("retention_ms", "-1", -1),
        ("retention_ms", "250", 250),
        ("flush_interval_ms", "50ms", 50),
        ("retention_bytes", "1GB", 10**9),
        ("segment_bytes", "1 GiB", 2**30),
        ("segment_bytes", "64kib", 65_536),
        ("auto_create", "no", False),
        ("auto_create", "TRUE", True),
        ("operator_port", "off", -1),
        ("flush", "os", "os"),
        ("data", "one, two", ("one", "two")),
        ("host", "0.0.0.0", "0.0.0.0"),
    ],
)
def test_values_are_parsed_with_units(name: str, text: str, value: object) -> None:
    variable = f"MILLSTREAM_{name.upper()}"
    assert getattr(load({}, {variable: text}), name) == value
    assert getattr(load({name: text}, {}), name) == value
    assert getattr(load({}, {}, ("f.toml", f"{name} = {text!r}")), name) == value


def test_the_file_may_contain_typed_toml_values() -> None:
    settings = load(
        {}, {}, ("f.toml", 'data = ["a", "b"]\nauto_create = false\nretention_ms = -1\nsegment_bytes = 32768\n')
    )
    assert settings.data == ("a", "b")
    assert settings.auto_create is False
    assert settings.retention_ms == -1
    assert settings.segment_bytes == 32768


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("kafka_port", "65536", "expected int <= 65535"),
        ("kafka_port", "off", "expected a whole number"),
        ("kafka_port", "-1", "expected int >= 0"),
        ("flush", "sometimes", "expected one of always, interval, os"),
        ("flush_interval_ms", "0", "expected int >= 1"),
        ("flush_interval_ms", "none", "expected int >= 1"),
        ("retention_ms", "-5", "negative, not a duration (examples: 7d, 36h, 600000, or none for no limit)"),
        ("retention_ms", "7 fortnights", "not a duration (examples: 7d, 36h, 600000)"),
        ("retention_bytes", "1 gallon", "not a size (examples: 1GiB, 64KiB, 500MB, 4096)"),
        ("auto_create", "perhaps", "expected true or false"),
        ("default_partitions", "0", "expected int >= 1"),
        ("data", "one,,two", "expected a list of names, none of them empty"),
        ("log_level", "loud", "expected one of debug, info, warning, error"),
    ],
)
def test_an_invalid_value_is_refused_with_its_field_value_and_source(name: str, text: str, reason: str) -> None:
    variable = f"MILLSTREAM_{name.upper()}"
    assert refusal(environment={variable: text}).startswith(
        f"{name} = {text!r} (environment variable {variable}): {reason}"
    )
    flag = "--" + name.replace("_", "-")
    assert refusal(flags={name: text}).startswith(f"{name} = {text!r} ({flag}): {reason}")


def test_a_wrong_type_in_the_file_is_refused() -> None:
    told = refusal(config=("f.toml", "data = 3\nauto_create = 1\n"))
    assert "data = 3 (file f.toml): expected array" in told
    assert "auto_create = 1 (file f.toml): expected bool" in told


def test_a_file_that_is_not_toml_is_refused_with_its_name() -> None:
    assert refusal(config=("f.toml", "kafka_port 3")).startswith("f.toml is not valid TOML: ")


def test_an_unknown_key_in_the_file_is_refused_with_a_suggestion() -> None:
    told = refusal(config=("f.toml", "kafka_prot = 1\n"))
    assert told == "there is no setting 'kafka_prot' (file f.toml); did you mean kafka_port?"


def test_an_unknown_variable_is_refused_with_a_suggestion() -> None:
    told = refusal(environment={"MILLSTREAM_RETENTION": "7d"})
    assert told.startswith("there is no setting for the environment variable MILLSTREAM_RETENTION; did you mean ")
    assert "MILLSTREAM_RETENTION_MS" in told or "MILLSTREAM_RETENTION_BYTES" in told


def test_an_unknown_name_without_a_similar_one_is_refused_with_all_names() -> None:
    assert "known names: advertised_host, auto_create" in refusal(config=("f.toml", "zzzz = 1\n"))


def test_variables_of_clients_and_other_programs_are_ignored() -> None:
    environment = {"MILLSTREAM_BOOTSTRAP": "a:9092", "MILLSTREAM_CONFIG": "f.toml", "HOME": "/", "KAFKA_PORT": "1"}
    assert load({}, environment) == BrokerSettings()


def test_all_problems_are_reported_in_one_error() -> None:
    told = refusal(flags={"kafka_port": "x"}, environment={"MILLSTREAM_FLUSH": "x"}, config=("f.toml", "zzzz = 1"))
    assert len(told.splitlines()) == 3


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_has_a_help_text_a_default_and_a_known_kind(name: str) -> None:
    field = FIELDS[name]
    assert field.help.endswith(".")
    assert field.default == getattr(BrokerSettings(), name)
    assert field.kind in {"text", "whole", "truth", "choice", "list", "duration", "size", "port"}
    assert bool(field.choices) == (field.kind == "choice")
