"""The asyncio client's object for exports and imports."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

from mnemon import _archive_lines as lines
from mnemon._archive_import import ImportRecords, Line, LineSorter
from mnemon._async.bulk import each_of, send_all
from mnemon._async.service import AsyncService, Stub
from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._values import documents as values
from mnemon._values.archive import ArchiveLine, ImportConflict, ImportResult
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1.archive_pb2_grpc import ArchiveServiceStub

Lines = Iterable[ArchiveLine | str | bytes] | AsyncIterable[ArchiveLine | str | bytes]


class AsyncArchive(AsyncService):
    """Exports and imports of a vault as lines of JSON, as `client.archive`.

    async with AsyncClient() as memory:
        with open("vault.jsonl", "w") as file:
            async for line in memory.archive.export():
                file.write(json.dumps(line, ensure_ascii=False) + "\\n")
    """

    _stub = Stub(ArchiveServiceStub)

    async def export(
        self,
        *,
        kinds: Iterable[str] = (),
        namespace: Iterable[str] = (),
        exact_namespace: bool = False,
        scope: values.Scope | None = None,
        vectors: bool = True,
        timeout: float | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields an archive as objects that `json` can write: a header, the records, and a summary.

        Without arguments it exports everything. `kinds` (see RecordKind) selects records of these kinds. `namespace`
        selects facts of this namespace and of all below it, or of this one alone with `exact_namespace`. `scope`
        selects what has this scope. Without `vectors` the file is smaller, and an import embeds the texts again. What
        changes during the export is repeated at the end; see ExportRecords. There is no deadline unless `timeout` sets
        one for the whole export.
        """
        request = pb.ExportRecordsRequest(
            selection=lines.selection_to_pb(kinds, namespace, scope, exact_namespace=exact_namespace),
            omit_vectors=not vectors,
        )
        async with aclosing(self._stream(self._stub.ExportRecords, request, timeout)) as responses:
            async for response in responses:
                for line in lines.lines_of(response):
                    yield line

    async def import_(
        self,
        archive: Lines,
        *,
        on_conflict: str = ImportConflict.NEWER,
        embed_anew: bool = False,
        bridge_events: bool = False,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> AsyncGenerator[ImportResult, None]:
        """Stores the records of an archive, and yields one result for each, in order.

        Lines are objects or JSON texts, and are read lazily. An invalid line fails alone. Importing the same archive
        again changes nothing, so an interrupted import can be repeated. `on_conflict` says what happens if an id is
        already in use. Vectors are kept if the server's model made them. Otherwise this raises
        EmbeddingModelMismatchError, unless `embed_anew` lets the server compute new ones. The bridge ignores imported
        events unless `bridge_events` is set. An archive that was cut off is imported as far as it goes, and then raises
        IncompleteArchiveError. A broken connection is resumed where it broke. A batch that is not answered within
        `timeout` seconds is an error.
        """
        sorter = LineSorter()
        method = ImportRecords(sorter, on_conflict=on_conflict, embed_anew=embed_anew, bridge_events=bridge_events)
        target, records = self._connection.target, _records(sorter, archive)
        async with aclosing(send_all(target, lambda: self._stub.ImportRecords, method, records, timeout)) as results:
            async for result in results:
                yield result
        sorter.check_end()


async def _records(sorter: LineSorter, archive: Lines) -> AsyncIterator[Line]:
    async for given in each_of(archive):
        if (line := sorter.read(given)) is not None:
            yield line
