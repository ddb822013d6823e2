"""The dispatch table: one row per API with its versions, required right, role, size limit and handler."""
