"""Names the field that a caller probably meant when a request has an unknown one."""

import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

_STEP = re.compile(r"\.(?P<field>[^.\[\]]+)|(?P<item>\[[^\]]*\])")
_CUTOFF = 0.6
_SYNONYMS = {
    "partitions": "total",
    "num_partitions": "total",
    "settings": "set",
    "config": "settings",
    "start": "offset",
    "position": "offset",
    "from": "offset",
    "at": "offset",
    "since": "time",
    "when": "time",
}
"""Names of other requests, or of other tools, that are not similar to the name here."""


def hint(kind: object, path: str, name: str) -> str:
    """Return "did you mean ...?", or the accepted fields, for an unknown field.

    `kind` is the type that the request is decoded as, and `path` the place of the object in it, such as `.events[0]`.
    """
    from difflib import get_close_matches  # only needed for an error message

    names = sorted({field for struct in _structs_at(kind, path) for field in struct.__struct_encode_fields__})
    if not names:
        return "no fields are accepted here"
    synonym = _SYNONYMS.get(name.lower())
    close = [synonym] if synonym in names else get_close_matches(name[:100].lower(), names, n=1, cutoff=_CUTOFF)
    return f"did you mean `{close[0]}`?" if close else f"accepted fields: {', '.join(names)}"


def _structs_at(kind: object, path: str) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that the object at `path` may be decoded as."""
    found = list(_unwrapped(inspect.type_info(kind)))
    for step in _STEP.finditer(path):
        below: list[inspect.Type] = []
        for each in found:
            if step["item"] and isinstance(each, inspect.CollectionType | inspect.VarTupleType):
                below += _unwrapped(each.item_type)
            elif isinstance(each, inspect.DictType):
                below += _unwrapped(each.value_type)
            elif isinstance(each, inspect.StructType):
                fields = (field for field in each.fields if field.encode_name == step["field"])
                below += [kind for field in fields for kind in _unwrapped(field.type)]
        found = below
    yield from (each.cls for each in found if isinstance(each, inspect.StructType))


def _unwrapped(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the alternatives of a union, without annotations."""
    if isinstance(kind, inspect.Metadata):
        yield from _unwrapped(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _unwrapped(each)
    else:
        yield kind
