"""Tests the comparison with another commit in its smallest form.

The tests make a repository of the current sources. They need no history, and reuse the modules that are compiled.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from bench.against.builds import BuildError, Builds
from bench.against.checkout import BUILT_FROM, Checkout, CheckoutError, git_environment
from bench.against.measures import NAMES

ROOT = Path(__file__).resolve().parents[3]


def git(directory: Path, *arguments: str) -> None:
    author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")
    command = ["git", *author, *arguments]
    subprocess.run(command, cwd=directory, env=git_environment(), check=True, capture_output=True)


def repository(directory: Path) -> Path:
    """Make a repository with one commit of all files that are in the directory."""
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message", "All of it")
    return directory


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clone this project, with the compiled modules of the tested checkout."""
    directory = tmp_path_factory.mktemp("clone")
    ignored = shutil.ignore_patterns(".work", "__pycache__", "*.egg-info")
    for name in (*BUILT_FROM, ".gitignore", "bench"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignored)
        else:
            (directory / name).parent.mkdir(exist_ok=True)
            shutil.copy2(source, directory / name)
    return repository(directory)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Make a repository of a project that cannot be built."""
    for name in ("src", "scripts"):
        (tmp_path / name).mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "brook"\n[project.scripts]\nbrook = "brook:main"\n')
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "src" / "brook.py").write_text("")
    (tmp_path / "scripts" / "codec").write_text("echo 'no compiler today'; exit 1\n")
    return repository(tmp_path)


@contextmanager
def started(clone: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.against", *arguments]
    bench = subprocess.Popen(
        command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield bench
    finally:
        with suppress(ProcessLookupError):
            os.killpg(bench.pid, signal.SIGKILL)  # Also its brokers, if the bench has not ended them.
        bench.communicate()


def test_a_commit_compared_with_itself_gets_a_row_for_each_measure(clone: Path, tmp_path: Path) -> None:
    with started(clone, "HEAD", "--tiny", "--data", str(tmp_path), "--json", str(tmp_path / "found.json")) as bench:
        said, _ = bench.communicate(timeout=240)
    assert bench.returncode == 0, said
    assert "sources unchanged" in said
    assert "No regression" in said
    measures = json.loads((tmp_path / "found.json").read_text())["measures"]
    assert [one["name"] for one in measures if len(one["ratios"]) == 1] == list(NAMES)
    assert all(f"| {name} | " in said for name in NAMES)
    assert list(tmp_path.glob("*/data*")) == []


def test_an_interrupted_comparison_ends_its_brokers(clone: Path, tmp_path: Path) -> None:
    arguments = ["--tiny", "--rounds", "1000", "--only", "ack-p50", "--data", str(tmp_path)]
    with started(clone, "HEAD", *arguments) as bench:
        assert bench.stdout is not None
        while "ack at" not in (line := bench.stdout.readline()):
            assert line
        bench.send_signal(signal.SIGINT)
        said, _ = bench.communicate(timeout=60)
        with pytest.raises(ProcessLookupError):
            os.killpg(bench.pid, 0)
    assert bench.returncode == 130, said
    assert "interrupted before the end" in said


def test_an_unknown_commit_is_refused_with_examples(clone: Path) -> None:
    with started(clone, "no-such-commit", "--tiny") as bench:
        said, _ = bench.communicate(timeout=60)
    assert bench.returncode == 2, said
    assert 'COMMIT: "no-such-commit" is not a commit' in said


def test_a_failed_build_reports_its_step_and_the_tail_of_its_log(small: Path, tmp_path: Path) -> None:
    checkout = Checkout(small)
    builds = Builds(checkout, tmp_path / "builds", lambda text: None)
    with pytest.raises(BuildError, match=r'failed at "compile the codec"[^$]*no compiler today'):
        builds.build(checkout.working_tree())


def test_a_working_tree_with_changed_sources_is_a_snapshot(small: Path, tmp_path: Path) -> None:
    checkout = Checkout(small)
    commit = checkout.commit("HEAD")
    (small / "notes.txt").write_text("not a source")
    assert checkout.working_tree().object_id == commit.object_id
    (small / "src" / "brook.py").write_text("changed")
    (small / "src" / "untracked.py").write_text("new")

    changed = checkout.working_tree()

    assert "sources changed" in changed.title
    (tmp_path / "files").mkdir()
    checkout.export(changed, tmp_path / "files")
    assert (tmp_path / "files" / "src" / "brook.py").read_text() == "changed"
    assert (tmp_path / "files" / "src" / "untracked.py").read_text() == "new"
    assert not (tmp_path / "files" / "notes.txt").exists()


def test_a_folder_that_is_not_the_root_of_a_checkout_is_refused(small: Path) -> None:
    with pytest.raises(CheckoutError, match="is not a git checkout"):
        Checkout(small / "src")
