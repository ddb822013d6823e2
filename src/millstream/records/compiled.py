"""Whether the codec runs as compiled code; if not, everything works, slower."""

from millstream.records import message, produced_batch, record_decoder, record_encoder, record_keys

COMPILED: bool = all(
    module.COMPILED for module in (record_decoder, record_encoder, record_keys, message, produced_batch)
)
