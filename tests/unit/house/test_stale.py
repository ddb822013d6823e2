"""Checks that `scripts/stale.py` removes the remains of an earlier source layout before an installation."""

from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path

import stale


class _Installed(Distribution):
    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url

    @property
    def metadata(self) -> Message:  # type: ignore[override]
        found = Message()
        found["Name"] = self._name
        return found

    def read_text(self, filename: str) -> str | None:
        return f'{{"url": "{self._url}"}}' if filename == "direct_url.json" else None

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError(path)


def test_compiled_files_without_a_source_are_deleted_with_their_folders(tmp_path: Path) -> None:
    today, former = tmp_path / "today", tmp_path / "former" / "records"
    for folder in (today, former):
        (folder / "__pycache__").mkdir(parents=True)
        (folder / "__pycache__" / "codec.cpython-311.pyc").touch()
        (folder / "codec.cpython-311.so").touch()
    (today / "codec.py").touch()
    (tmp_path / "former.egg-info").mkdir()
    stale.clean(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["today", "today/codec.cpython-311.so", "today/codec.py"]


def test_editable_installations_of_the_project_under_a_former_name_are_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "today"\n')
    here = tmp_path.as_uri()
    installed = [_Installed("today", here), _Installed("former", here), _Installed("other", "file:///elsewhere")]
    assert stale.other_names(tmp_path, iter(installed)) == ["former"]
