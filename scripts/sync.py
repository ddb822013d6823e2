"""Generates the blocking classes from the asynchronous ones: src/millstream/sdk/aio -> src/millstream/sdk/sync.

    scripts/sync.py           write the classes, and the reference that is generated from them (scripts/reference.py)
    scripts/sync.py --check   fail and name the files that are out of date

Only words change: `async` and `await` are removed, and `AsyncX` becomes `X`, also in texts. Larger differences, such as
how to wait, are in facade.py of both packages, which is written by hand.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import reference

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "millstream" / "sdk" / "aio"
TARGET = ROOT / "src" / "millstream" / "sdk" / "sync"
BY_HAND = {"__init__.py", "facade.py", "portal.py"}

WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "aclosing": "closing",
    "aiter": "iter",
    "aio": "sync",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "connect_async": "connect",
}
_GONE = ("async", "await")
_PROSE = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
"""Newer versions of Python have separate tokens for the text in f-strings."""

_ASYNC_NAME = re.compile(r"^Async(?=[A-Z])")
_WORD = re.compile(r"\b(?:async |await )|\b\w+\b")


def word(text: str) -> str:
    """Translate one name."""
    return WORDS.get(text) or _ASYNC_NAME.sub("", text)


def prose(text: str) -> str:
    """Translate a comment or a string, including code in it."""
    return _WORD.sub(lambda found: "" if found[0].rstrip() in _GONE and found[0][-1] == " " else word(found[0]), text)


def translate(source: str, name: str) -> str:
    """Translate the source of module `name`, without formatting."""
    out: list[str] = []
    row, column = 1, 0
    lines = source.splitlines(keepends=True)
    skip_space = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start > (row, column):
            between = _between(lines, (row, column), token.start)
            out.append(between.lstrip(" ") if skip_space else between)
        skip_space = token.type == tokenize.NAME and token.string in _GONE
        if token.type == tokenize.NAME:
            out.append("" if skip_space else word(token.string))
        elif token.type in _PROSE:
            out.append(prose(token.string))
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT):
            out.append(token.string)
        else:
            out.append(token.string if token.type == tokenize.INDENT else "")
        row, column = token.end
    return f"# Written by scripts/sync.py from aio/{name}: change that, and run it again.\n" + "".join(out)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    rest = lines[start[0] - 1][start[1] :] if start[0] <= len(lines) else ""
    return rest + "".join(lines[start[0] : end[0] - 1]) + (lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else "")


def formatted(text: str, path: Path) -> str:
    """Format the text as `make format` does."""
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for arguments in (["check", "--fix-only", "--quiet", "--select", "I"], ["format", "--quiet"]):
        command = [*ruff, *arguments, "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def expected() -> dict[Path, str]:
    """The expected content of each generated file."""
    wanted = {}
    for source in sorted(SOURCE.glob("*.py")):
        if source.name not in BY_HAND:
            path = TARGET / source.name
            wanted[path] = formatted(translate(source.read_text(encoding="utf-8"), source.name), path)
    return wanted


def stale() -> list[Path]:
    """The files that are missing, out of date or obsolete."""
    wanted = expected()
    there = {path for path in TARGET.glob("*.py") if path.name not in BY_HAND}
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | (there - wanted.keys()))


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/sync.py", file=sys.stderr)
        return 1 if found else 0
    for path, text in expected().items():
        path.write_text(text, encoding="utf-8")
    for path in stale():
        path.unlink()
    reference.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
