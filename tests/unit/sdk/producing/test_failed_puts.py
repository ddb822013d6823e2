"""What a message that was not stored leaves behind: an id that is no other message's, and nothing that waits."""

import asyncio

import pytest

from builders.engines import Put
from builders.scripted_broker import Late, Refuse, Scene, play
from penstock.model.errors import ErrorCode, PenstockError


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE])
@pytest.mark.parametrize("told_early", [False, True])
def test_the_id_of_a_message_that_was_not_stored_is_never_that_of_another(code: ErrorCode, told_early: bool) -> None:
    async def body(scene: Scene) -> None:
        put = Put(scene)
        await put("t", b"a")
        scene.cluster.then("Produce", Late(1.0), Refuse(code))
        ahead = put("t", b"b")
        await asyncio.sleep(0.1)
        refused = put("t", b"c")
        await asyncio.sleep(0.1)
        told = refused.message_id if told_early else None
        with pytest.raises(PenstockError, match=code.name):
            await refused
        await ahead
        after = put("t", b"d")
        await after
        assert after.message_id.startswith(b"~")
        assert after.message_id != refused.message_id
        assert told is None or refused.message_id == told
        assert refused.message_id == refused.message_id
        assert scene.cluster.topics["t"][0].values == [b"a", b"b", b"d"]

    play(body)
