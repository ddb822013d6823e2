"""Opens an index whose files an earlier version wrote."""

from base64 import b64decode
from types import SimpleNamespace

from millstream.model.ids import ProducerId
from millstream.partition.message_ids.index import IdIndex
from millstream.partition.message_ids.keys import IndexedMessage, batch_key, id_key
from millstream.partition.message_ids.limits import IdLimits
from millstream.partition.runs.run import find_newest
from millstream.storage.log.open_files import OpenFiles
from millstream.testing.simulated.disk import SimulatedDisk

FILES = {
    "ids-00000000000000000001.run": (
        "L+J33klkY2+jo+vN3hZmnAAAAAAAAAAAAAAAATU8/cItjrawXP11o3IgPN4AAAAAAAAABAAAAAFUHHbVHr4AiTzEqqEPy4x0AAAAAAAAAAEAAAAB"
        "VkHmlVUygLaFYOMMfNLuVAAAAAAAAAADAAAAAb4WVqftsJ5NqdO2GJEsIOEAAAAAAAAAAgAAAAGqIjUDQb4GoAnTbUBQ1mRJ"
    ),
    "ids-00000000000000000002.run": (
        "I/SBaEOzw8lHygG9tTUiNgAAAAAAAAAGAAAAAWIUIBbNwgfHkFNUhXiEjUsAAAAAAAAABwAAAAGoMFHmTW67P/20fnTC50+EAAAAAAAAAAUAAAAB"
        "/c0twetgTkMh7zn0zVdBrgAAAAAAAAAIAAAABC6k3uOZQg0xIkGMwO0HruA="
    ),
    "ids.snapshot": (
        "TVNUUk1TTjET7QOqdgAAAAAAAAAMAAAAAAAAAE1JRFMAAQAAAAAAAAADAAAAAgAAAAAAAAABAAAAAAAAAAUAAAAIAAAAAAAAAAUAAAAAAAAD6AAA"
        "AAAAAAPoAAAAAAAAAAIAAAAAAAAABAAAAAgAAAAAAAAADAAAAAAAAAAAAAAAAAAAAADq7LA4"
    ),
}
"""Ids "0" to "4" at offsets 0 to 4, then "5" to "7", and a batch of four messages at offset 8."""


def test_an_index_of_an_earlier_version_is_opened_and_written_back_unchanged() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    for name, content in FILES.items():
        disk.open(f"/log/{name}", create=True).write(b64decode(content), 0)
    log = SimpleNamespace(path="/log", files=OpenFiles(disk, 8), end_offset=12, segments=[])
    index = IdIndex.load(log, IdLimits(), 2000)
    assert index is not None
    assert (len(index), index.covered) == (9, 12)
    keys = [*(id_key(b"%d" % number) for number in range(9)), batch_key(ProducerId(7), epoch=0, base_sequence=3)]
    found = find_newest(index.runs, keys)
    expected = [*((number, 1) for number in range(8)), None, (8, 4)]
    assert [IndexedMessage.unpack(found[key]) if key in found else None for key in keys] == expected
    index.name_runs(2000).write()
    list_file = disk.open("/log/ids.snapshot")
    assert list_file.read(list_file.size(), position=0) == b64decode(FILES["ids.snapshot"])
