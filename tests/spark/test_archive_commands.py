"""Tests `millstream pipeline archive` and `verify` as processes: kill, restart, graceful stop, and errors."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.failures import EXIT_DAMAGED, EXIT_USAGE
from millstream.spark.archive import archive
from spark.site import LONG_S, Site, numbers, until


@contextmanager
def command(site: Site, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `millstream pipeline ...`. All processes that it has started, Spark's included, end with the block."""
    words = [sys.executable, "-m", "millstream.cli", "pipeline", *arguments, "--bootstrap", site.broker.bootstrap]
    process = subprocess.Popen(
        [*words, "--json"], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(site: Site, *arguments: str) -> tuple[int, str, str]:
    with command(site, *arguments) as process:
        output, errors = process.communicate(timeout=LONG_S)
        return process.returncode, output, errors


def told(output: str, name: str) -> dict[str, Any]:
    """Returns the line of output that has this field."""
    (line,) = (line for line in map(json.loads, output.splitlines()) if name in line)
    found: dict[str, Any] = line
    return found


def await_files(directory: Path, process: subprocess.Popen[str], least: int) -> None:
    def are_there() -> bool:
        assert process.poll() is None, "the command ended by itself"
        return sum(1 for _ in directory.glob("*.parquet")) >= least

    until(are_there, f"{least} files in {directory}")


def test_an_archive_killed_and_restarted_has_every_message_once(site: Site) -> None:
    site.client.create_topic(site.topic, partitions=2)
    place = site.files / "archive"
    home = place / "_millstream" / site.topic
    archiving = ("archive", site.topic, "--to", str(place), "--master", "local[2]", "--every", "0.1")
    site.write(range(1000), partition=0)
    with command(site, *archiving) as process:
        await_files(home / "index", process, 1)
        site.write(range(1000, 2000), partition=1)
        await_files(home / "staged", process, 1)
        os.killpg(process.pid, signal.SIGKILL)
    committed = sum(1 for _ in (home / "index").iterdir())
    site.write(range(2000, 2500), partition=0)
    with command(site, *archiving) as process:
        await_files(home / "index", process, committed + 1)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=LONG_S)
        assert process.returncode == 0, errors
    assert told(output, "files")["rows"] >= 500
    archive(site.spark, site.topic, str(place), bootstrap=site.broker.bootstrap, once=True)
    assert not list((home / "staged").iterdir())
    assert numbers(site.spark.read.parquet(str(place / "data"))) == list(range(2500))
    next((place / "data").rglob("*.parquet")).unlink()
    code, output, _ = ended(site, "verify", str(place), "--master", "local[2]")
    assert code == EXIT_DAMAGED
    assert len(told(output, "differences")["differences"]) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("archive", "nowhere", "--to", "PLACE"), 1, "topic 'nowhere'"),
        (("archive", "TOPIC", "--to", "FILE"), EXIT_USAGE, "cannot create an archive in"),
        (("archive", "TOPIC", "--to", "ftp://x/y"), EXIT_USAGE, "cannot create an archive in ftp://x/y"),
        (("archive", "TOPIC", "--to", "PLACE", "--data-loss", "some"), EXIT_USAGE, "--data-loss 'some'"),
        (("verify", "PLACE"), 1, "there is no archive in"),
    ],
)
def test_errors_are_reported_before_spark_starts(site: Site, words: tuple[str, ...], code: int, text: str) -> None:
    site.client.create_topic(site.topic)
    (site.files / "file").write_bytes(b"")
    known = {"TOPIC": site.topic, "PLACE": str(site.files / "place"), "FILE": str(site.files / "file")}
    found, output, errors = ended(site, *(known.get(word, word) for word in words))
    assert (found, output) == (code, "")
    assert text in json.loads(errors)["message"]
