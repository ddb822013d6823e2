"""Record batch v2."""

from penstock.records._decode import COMPILED

__all__ = ["COMPILED"]
