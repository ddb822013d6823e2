"""Defines the error text of a put whose arguments do not fit together."""

TOMBSTONE_WITHOUT_KEY = (
    "a null value is a tombstone and needs the key whose messages it deletes; give a key, or an empty value"
)
