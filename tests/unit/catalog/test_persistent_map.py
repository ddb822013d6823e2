"""Tests that changing an immutable map leaves the original map unchanged."""

from random import Random

from millstream.catalog.persistent_map import PersistentMap


def test_changed_copies_equal_a_dict_and_leave_older_ones_unchanged() -> None:
    random = Random(7)
    kept: list[tuple[PersistentMap[str, int], dict[str, int]]] = [(PersistentMap.of(()), {})]
    for value in range(600):
        made, expected = kept[-1]
        key = f"key-{random.randrange(300)}"
        if key in expected and random.random() < 0.4:
            made, expected = made.without(key), {name: each for name, each in expected.items() if name != key}
        else:
            made, expected = made.having(key, value), {**expected, key: value}
        kept.append((made, expected))
    for made, expected in kept:
        assert {key: made.get(key) for key in (f"key-{number}" for number in range(300))} == {
            f"key-{number}": expected.get(f"key-{number}") for number in range(300)
        }
    for made, expected in kept[::60]:
        newest, now = kept[-1]
        changed = {key for key in expected.keys() | now.keys() if expected.get(key) != now.get(key)}
        assert set(newest.keys_changed_since(made)) == changed


def test_a_map_compared_with_itself_has_no_changed_keys() -> None:
    made = PersistentMap.of((str(number), number) for number in range(100))
    assert list(made.keys_changed_since(made)) == []
    assert list(made.having("7", 8).keys_changed_since(made)) == ["7"]
