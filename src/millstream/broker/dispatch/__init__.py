"""The dispatch table: one row per API, with its versions, required right and limits."""
