"""The archive service: a vault's records as a stream that another vault takes, with vectors, times and revisions."""

from collections.abc import AsyncGenerator

from mnemon_server.domain.archive import (
    FIGURE_MAX,
    FIGURE_RANGE,
    FORMAT_VERSION,
    ExportSelection,
    ImportStart,
    VectorModel,
    selection_violations,
)
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import EmbeddingModelMismatchError, InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.archive.exporting import Export, ExportMessage
from mnemon_server.services.archive.importing import Import
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.health import Capacity

READER_THREADS = 2


class ArchiveStore:
    """Exports and imports over a vault. All methods are safe to call from many tasks at once."""

    def __init__(
        self,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        rules: RuleStore,
        capacity: Capacity | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Takes nothing over. Without a capacity, statements are not counted."""
        self._vault = vault
        self._embedder = embedder
        model = embedder.model
        self._model = VectorModel(model.name, model.revision, model.precision, model.dimension)
        self._rules = rules
        self._capacity = capacity
        self._clock = clock
        self._offload = Offload(READER_THREADS, "archive")

    async def export(self, selection: ExportSelection, *, vectors: bool = True) -> AsyncGenerator[ExportMessage, None]:
        """A header, runs of records, and a summary; see ExportRecords of the protos.

        Raises:
            InvalidArgumentError: the selection contradicts itself.
            IndexWarmingError: events are selected, and the timeline's index is not loaded yet.
        """
        refuse(selection_violations(selection))
        exporting = Export(
            self._vault,
            selection,
            model=self._model if vectors else None,
            rules_version=(await self._rules.export())[1],
            offload=self._offload,
            clock=self._clock,
        )
        async for message in exporting.run():
            yield message

    def begin_import(self, start: ImportStart) -> Import:
        """Begins an import on these terms.

        Raises:
            InvalidArgumentError: the format of the archive is unknown, or its version of the rules is out of range.
            EmbeddingModelMismatchError: another model made its vectors, and `embed_anew` is not set.
        """
        header = start.header
        if header is not None and header.format_version != FORMAT_VERSION:
            raise InvalidArgumentError.of(
                "start.header.format_version",
                f"must be {FORMAT_VERSION}, the only version that this server knows, not {header.format_version}",
            )
        if header is not None and not 0 <= header.rules_version <= FIGURE_MAX:
            raise InvalidArgumentError.of("start.header.rules_version", FIGURE_RANGE)
        made_by = header.model if header else None
        if made_by is not None and made_by.identity != self._model.identity and not start.embed_anew:
            raise EmbeddingModelMismatchError(
                f"the vectors of the archive were made by {made_by.identity}, and the model here is "
                f"{self._model.identity}: import with embed_anew, which computes new ones"
            )
        return Import(
            self._vault,
            start,
            embedder=self._embedder,
            rules=self._rules,
            capacity=self._capacity,
            offload=self._offload,
            clock=self._clock,
        )

    async def aclose(self) -> None:
        """Waits for what has begun; calls after it fail."""
        await self._offload.aclose()
