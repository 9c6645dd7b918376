"""A key that is revoked while hundreds of streams use it: they end, and nothing more reaches or leaves them."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from mnemon.v1 import changes_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.access import bearer, every_event_logged, guarded_server, key_id, make_key
from tests.support.server import Connection, reason, run_command, stream_end, until

WATCHES, IMPORTS = 200, 50
EFFECTIVE_S = 5.0
"""Within which the server promises that a revocation takes effect."""
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


class Reader:
    """A watch that notes when it was told something last."""

    def __init__(self, call: Any) -> None:
        self.call, self.told, self.told_at = call, 0, 0.0

    async def read(self) -> aio.AioRpcError:
        """Reads to the end, which is an error."""
        try:
            while (message := await self.call.read()) is not aio.EOF:
                self.told, self.told_at = self.told + len(message.batch.changes), time.monotonic()
        except aio.AioRpcError as error:
            return error
        raise AssertionError("the watch ended well")


async def test_nothing_reaches_hundreds_of_streams_once_their_key_is_revoked(tmp_path: Path) -> None:
    await revoke_under_load(tmp_path)


@pytest.mark.slow
async def test_nothing_reaches_hundreds_of_streams_five_seconds_after_their_key_was_revoked(tmp_path: Path) -> None:
    revoked_at, readers = await revoke_under_load(tmp_path)
    assert max(each.told_at for each in readers) - revoked_at < EFFECTIVE_S


async def test_a_stream_that_its_caller_cancels_is_no_incident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = make_key(tmp_path, "reader")
    with every_event_logged():
        async with guarded_server(tmp_path) as connection:
            for _ in range(3):
                call = watch(connection, secret)
                assert (await call.read()).HasField("started")
                call.cancel()
            await until(lambda: connection.server.open_streams == 0)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["code"] for line in lines if line.get("method", "").endswith("WatchChanges")] == ["CANCELLED"] * 3
    assert "incident" not in {line["event"] for line in lines}


async def revoke_under_load(folder: Path) -> tuple[float, Sequence[Reader]]:
    """Revokes a key that watches and imports while another one writes. Returns when, and the watches."""
    revoked, kept = (make_key(folder, "writer") for _ in range(2))
    async with guarded_server(folder, streams_max=1_000) as connection:
        readers = [Reader(watch(connection, revoked)) for _ in range(WATCHES)]
        imports = [connection.store.BulkIndexDocuments(metadata=bearer(revoked)) for _ in range(IMPORTS)]
        for number, each in enumerate(imports):
            assert await is_stored(each, f"import-{number}")
        reading = [asyncio.create_task(each.read()) for each in readers]
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write_on(connection, kept))
            await until(lambda: all(each.told for each in readers))
            command = ("keys", "revoke", key_id(revoked), "--data-dir", str(folder))
            assert (await asyncio.to_thread(run_command, *command)).returncode == 0
            revoked_at = time.monotonic()
            ends = [*await asyncio.gather(*reading), *[(await stream_end(each))[1] for each in imports]]
            assert {(each.code(), reason(each)) for each in ends} == {REFUSED}
            told = [each.told for each in readers]
            assert not [each for each in imports if await is_stored(each, "late")]
            await until(lambda: connection.server.open_streams == 0)
            writing.cancel()
        assert [each.told for each in readers] == told
        assert [await exists(connection, kept, each) for each in ("import-7", "late")] == [True, False]
    return revoked_at, readers


def watch(connection: Connection, secret: str) -> Any:
    return connection.changes.WatchChanges(changes_pb2.WatchChangesRequest(), metadata=bearer(secret))


def index(doc_id: str) -> pb.IndexDocumentRequest:
    return pb.IndexDocumentRequest(document=pb.Document(doc_id=doc_id, content=f"the text of {doc_id}"))


async def is_stored(call: Any, doc_id: str) -> bool:
    """Whether the bulk stream takes a document."""
    try:
        await call.write(pb.BulkIndexDocumentsRequest(requests=[index(doc_id)]))
        return bool((await call.read()).results)
    except (aio.AioRpcError, asyncio.InvalidStateError):
        return False


async def write_on(connection: Connection, secret: str) -> None:
    """Changes the same document again and again, so that watches are told all the time."""
    while True:
        await connection.store.IndexDocument(index("note"), metadata=bearer(secret))


async def exists(connection: Connection, secret: str, doc_id: str) -> bool:
    call = connection.store.GetDocument(pb.GetDocumentRequest(doc_id=doc_id), metadata=bearer(secret))
    return await call.code() is grpc.StatusCode.OK
