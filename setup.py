"""Compiles what works on single records where a C compiler is at hand; without one it is installed as the plain Python
that it also is.

Everything else about the package is said in pyproject.toml.
"""

import shutil
import warnings
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

RECORDS = Path("src", "millstream", "records")
PRODUCING = Path("src", "millstream", "sdk", "producing")
MODULES = (
    *(
        RECORDS / name
        for name in (
            "record_encoder.py",
            "record_decoder.py",
            "record_keys.py",
            "record_walk.py",
            "message.py",
            "produced_batch.py",
        )
    ),
    *(PRODUCING / name for name in ("chunk.py", "row_partitioning.py")),
)
COMPILE_ARGS = ["-O3", "-fwrapv", "-g0"]
DIRECTIVES = {
    "language_level": 3,
    # Reads and writes through memory views stay checked, however sure the code is of its positions.
    "boundscheck": True,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "auto_pickle": False,
}


class OptionalBuild(build_ext):
    """A build that warns where an extension cannot be made, instead of failing the whole installation."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as problem:  # Compilers fail in as many ways as there are of them.
            uncompiled(problem)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as problem:
            uncompiled(problem)


class BuildWithContract(build_py):
    """A build that has the contract of gRPC in it, as millstream/gateway/proto, for whoever generates a client."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree("proto", Path(self.build_lib, "millstream", "gateway", "proto"), dirs_exist_ok=True)


def extensions() -> list[Extension]:
    """These modules as extensions; none where Cython is missing."""
    try:
        from Cython.Build import cythonize
    except ImportError as problem:
        return uncompiled(problem)
    modules = [
        Extension(
            ".".join(module.with_suffix("").parts[1:]),
            [str(module)],
            depends=[str(RECORDS / name) for name in ("_python.pxd", "message.pxd")],
            extra_compile_args=COMPILE_ARGS,
        )
        for module in MODULES
    ]
    try:
        return list(cythonize(modules, build_dir="build/cython", compiler_directives=DIRECTIVES))
    except (
        Exception
    ) as problem:  # A version of Cython that does not understand the codec must not stop an installation.
        return uncompiled(problem)


def uncompiled(problem: Exception) -> list[Extension]:
    """Say so, and see to it that no codec compiled from another source is taken for this one."""
    warnings.warn(f"the record codec is not compiled and will be slower: {problem}", stacklevel=2)
    for folder in (RECORDS, PRODUCING):
        for stale in folder.glob("*.so"):
            stale.unlink()
    return []


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild, "build_py": BuildWithContract})
