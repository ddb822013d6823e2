"""Finds commits of this repository with git, takes snapshots of the working tree, and exports the files of either."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.building import run

BUILT_FROM = ("src", "scripts/codec", "pyproject.toml", "setup.py")
"""The paths that a broker is built from; changes elsewhere do not affect a build."""


def git_environment() -> dict[str, str]:
    """Returns the environment without the variables that point git at another repository, as its hooks set them."""
    pointing = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"}
    return {name: value for name, value in os.environ.items() if name not in pointing}


class CheckoutError(RuntimeError):
    """Git cannot give the requested files."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One state of the repository's files."""

    object_id: str
    """The hash of the commit, or of the tree for a working tree with changes."""
    title: str


class Checkout:
    """A git working tree. Raises CheckoutError if `root` is not the root of one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            top = self._git("rev-parse", "--show-toplevel")
        except (CheckoutError, FileNotFoundError) as error:
            raise CheckoutError(f"{root} is not a git checkout: {error}. Clone the repository with git") from error
        if Path(top).resolve() != root.resolve():
            raise CheckoutError(f"{root} is not a git checkout, only a folder of {top}. Clone the repository with git")

    def commit(self, name: str) -> Revision:
        """Looks up a commit by its hash, branch, tag or any other name that git knows."""
        try:
            commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except CheckoutError as error:
            raise CheckoutError(
                f'COMMIT: "{name}" is not a commit of {self._root} (examples: HEAD~1, main, a hash). '
                "If the clone is shallow, run: git fetch --unshallow"
            ) from error
        return Revision(commit, f"commit {self._short(commit)}")

    def working_tree(self) -> Revision:
        """Returns the commit that is checked out or, if its sources were changed, a snapshot with these changes."""
        head = self.commit("HEAD")
        with tempfile.TemporaryDirectory() as directory:
            index = {"GIT_INDEX_FILE": str(Path(directory, "index"))}
            self._git("read-tree", "HEAD", environment=index)
            self._git("add", "--all", "--", *BUILT_FROM, environment=index)
            tree = self._git("write-tree", environment=index)
        if tree == self._git("rev-parse", "HEAD^{tree}"):
            return Revision(head.object_id, f"working tree, {head.title}, sources unchanged")
        return Revision(tree, f"working tree, {head.title}, sources changed (snapshot {self._short(tree)})")

    def export(self, revision: Revision, directory: Path) -> None:
        """Writes all files of a revision into an empty directory."""
        archive = directory.with_name(f"{directory.name}.tar")
        try:
            self._git("archive", "--format=tar", "-o", str(archive), revision.object_id)
            run("tar", "-xf", archive, "-C", directory)
        finally:
            archive.unlink(missing_ok=True)

    def _short(self, object_id: str) -> str:
        return self._git("rev-parse", "--short", object_id)

    def _git(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self._root,
            env={**git_environment(), **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CheckoutError(done.stderr.strip() or f"git {arguments[0]} failed")
        return done.stdout.strip()
