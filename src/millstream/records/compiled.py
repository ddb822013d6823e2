"""Whether the codec runs as compiled code; if not, everything works, slower."""

from millstream.records import _decode, _encode, _keys, message, produced

COMPILED: bool = all(module.COMPILED for module in (_decode, _encode, _keys, message, produced))
