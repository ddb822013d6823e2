"""Compiles the record codec where a C compiler is at hand; without one it is installed as the plain Python it also is.

Everything else about the package is said in pyproject.toml.
"""

import warnings
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CODEC = ("_encode", "_decode")
_COMPILE_ARGS = ["-O3", "-fwrapv"]


class OptionalBuild(build_ext):
    """A build that warns where an extension cannot be made, instead of failing the whole installation."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as problem:  # Compilers fail in as many ways as there are of them.
            self._warn(problem)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as problem:
            self._warn(problem)

    def _warn(self, problem: Exception) -> None:
        warnings.warn(f"the record codec is not compiled and will be slower: {problem}", stacklevel=2)


def extensions() -> list[Extension]:
    """The codec's modules as extensions; none where Cython is missing."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        warnings.warn("Cython is missing: the record codec is not compiled and will be slower", stacklevel=2)
        return []
    modules = [
        Extension(
            f"penstock.records.{name}",
            [str(Path("src", "penstock", "records", f"{name}.py"))],
            extra_compile_args=_COMPILE_ARGS,
        )
        for name in CODEC
    ]
    return list(
        cythonize(
            modules,
            build_dir="build/cython",
            compiler_directives={
                "language_level": 3,
                # Reads and writes through memory views stay checked, however sure the code is of its positions.
                "boundscheck": True,
                "wraparound": False,
                "initializedcheck": False,
                "cdivision": True,
            },
        )
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
