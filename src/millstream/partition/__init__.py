"""One partition as its leader serves it: append, read, watermark, epochs, idempotent producers, message ids."""
