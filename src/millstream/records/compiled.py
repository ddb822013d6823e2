"""Reports whether the record codec runs as compiled code. As plain Python it gives the same results, but slower."""

from millstream.records import message, produced_batch, record_decoder, record_encoder, record_keys

COMPILED: bool = all(
    module.COMPILED for module in (record_decoder, record_encoder, record_keys, message, produced_batch)
)
