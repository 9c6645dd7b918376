"""Previews an extraction: asks the extractor, saves its answer, and takes the transaction back."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from mnemon_server.domain.bridge.extraction import (
    PREVIEW_MESSAGES_MAX,
    ExtractionPreview,
    ExtractMode,
    PreviewedStatement,
    PreviewRequest,
)
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conversations import NAME_BYTES_MAX, ROLE_BYTES_MAX
from mnemon_server.domain.errors import ConfigurationError, FieldViolation, MnemonError
from mnemon_server.domain.events import CONVERSATION_BYTES_MAX, EVENT_ID_BYTES_MAX, MESSAGE_TYPE, Event
from mnemon_server.domain.semantic import SavedSemantic
from mnemon_server.domain.validation import (
    content_violations,
    id_violations,
    refuse,
    scope_violations,
)
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.bridge.conversations import ConversationReader
from mnemon_server.services.bridge.extracted import ExtractedBatch, prepared
from mnemon_server.services.bridge.extracting import SETTINGS_OF_MODES, Extractors
from mnemon_server.services.extraction.desk import ExtractorDesk
from mnemon_server.services.extraction.extractor import RefusedError
from mnemon_server.services.semantic.saving import SaveProgram
from mnemon_server.services.semantic.store import SemanticStore


class _TakenBackError(Exception):
    """Ends a transaction that was only a preview."""


@dataclass(eq=False, repr=False, slots=True)
class ExtractionPreviews:
    """Previews extractions; any number at the same time."""

    _vault: Vault
    _semantic: SemanticStore
    _reader: ConversationReader
    _extractors: Extractors
    _offload: Offload

    async def preview(self, asked: PreviewRequest, mode: ExtractMode, content_max: int) -> ExtractionPreview:
        """The statements that extracting these messages would save; none without messages. `mode` is the policy's.

        Raises:
            InvalidArgumentError: names the invalid fields.
            ConfigurationError: the server has no such extractor.
            ExtractorAwayError, BudgetSpentError: the extractor cannot be asked now.
            and what SemanticStore.prepared raises.
        """
        refuse(preview_violations(asked))
        turns = [replace(turn, message_id=turn.message_id or f"{n}") for n, turn in enumerate(asked.messages, 1)]
        messages = [Event(turn.message_id, MESSAGE_TYPE, turn.time, turn.content, scope=asked.scope) for turn in turns]
        first = 0
        if not turns:
            last = asked.last or self._extractors.settings.batch.messages_max
            messages, first = await self._reader.newest(asked.scope, asked.conversation, last)
        if not messages:
            return ExtractionPreview()
        desk = self._desk(asked.mode if asked.mode is not ExtractMode.OFF else mode)
        if turns:
            request = await self._reader.request_of(asked.scope, asked.conversation, turns, content_max)
        else:
            request = await self._reader.request(messages, first, content_max)
        try:
            answer = await desk.ask(request)
        except RefusedError as error:
            return ExtractionPreview(
                refusal=error.reason, message=str(error), message_count=len(messages), tokens=error.tokens
            )
        sources = {event.event_id: event for event in messages}
        async with prepared(self._semantic, answer, request, sources) as batch:
            saved = await self._save_and_take_back(batch)
        return ExtractionPreview(
            statements=tuple(
                PreviewedStatement(extracted=statement, saved=each)
                for statement, each in zip(batch.statements, saved, strict=True)
            ),
            summary=answer.summary,
            message_count=len(messages),
            tokens=answer.tokens,
        )

    def _desk(self, mode: ExtractMode) -> ExtractorDesk:
        desks = self._extractors.desks
        if mode is ExtractMode.OFF:
            mode = next(iter(desks), ExtractMode.MODEL)
        if mode not in desks:
            raise ConfigurationError(
                f"this server has no such extractor: its setting {SETTINGS_OF_MODES[mode]} is empty"
            )
        return desks[mode]

    async def _save_and_take_back(self, batch: ExtractedBatch) -> list[SavedSemantic]:
        saved: list[SavedSemantic] = []

        def program(tx: VaultTransaction) -> str:
            nonlocal saved
            shown = self._reader.shown_in(tx)
            saved = [_saved(shown, each) for each in batch.programs]
            raise _TakenBackError

        with suppress(_TakenBackError):
            await completion(self._vault.transact(program))
        return await self._offload(self._with_stored_ids, saved)

    def _with_stored_ids(self, saved: Sequence[SavedSemantic]) -> list[SavedSemantic]:
        """The results without receipts, and without the ids of what was not stored."""
        ids = {each.memory.memory_id for each in saved if each.memory is not None}
        for each in saved:
            if each.decision is not None:
                ids |= {each.decision.candidate_id, each.decision.existing_id, each.decision.result_id}
        named = sorted(ids - {""})
        found = self._vault.collection(SEMANTIC).get_documents(named) if named else []
        stored = {document.doc_id for document in found if document is not None}
        return [_with_ids_in(stored, each) for each in saved]


def _saved(tx: VaultTransaction, program: SaveProgram | MnemonError) -> SavedSemantic:
    if isinstance(program, MnemonError):
        raise program
    return program.save(tx)


def _with_ids_in(stored: set[str], saved: SavedSemantic) -> SavedSemantic:
    def known(memory_id: str) -> str:
        return memory_id if memory_id in stored else ""

    memory, decision = saved.memory, saved.decision
    if memory is not None and not known(memory.memory_id):
        memory = replace(memory, memory_id="", revision=0)
    if decision is not None:
        decision = replace(
            decision,
            decision_id="",
            candidate_id=known(decision.candidate_id),
            existing_id=known(decision.existing_id),
            result_id=known(decision.result_id),
        )
    return replace(saved, memory=memory, decision=decision, receipt=None)


def preview_violations(asked: PreviewRequest) -> Iterable[FieldViolation]:
    """Violations in a request for a preview."""
    if not asked.scope.user:
        yield FieldViolation("scope.user", "must name the user that the conversation belongs to")
    yield from scope_violations(asked.scope)
    if bool(asked.conversation) == bool(asked.messages):
        yield FieldViolation("conversation_id", "must be set if messages is empty, and only then")
    yield from id_violations(asked.conversation, "conversation_id", CONVERSATION_BYTES_MAX)
    if not 0 <= asked.last <= PREVIEW_MESSAGES_MAX:
        yield FieldViolation("last", f"must be 1 to {PREVIEW_MESSAGES_MAX}, or 0 for as many as a batch has")
    if len(asked.messages) > PREVIEW_MESSAGES_MAX:
        yield FieldViolation("messages", f"must be at most {PREVIEW_MESSAGES_MAX}")
        return
    numbers: dict[str, int] = {}
    for number, turn in enumerate(asked.messages):
        field = f"messages[{number}]"
        yield from id_violations(turn.message_id, f"{field}.message_id", EVENT_ID_BYTES_MAX)
        if turn.message_id and numbers.setdefault(turn.message_id, number) != number:
            yield FieldViolation(f"{field}.message_id", "must differ from the ids of other messages")
        yield from id_violations(turn.role, f"{field}.role", ROLE_BYTES_MAX)
        yield from id_violations(turn.name, f"{field}.name", NAME_BYTES_MAX)
        yield from content_violations(turn.content, f"{field}.content")
