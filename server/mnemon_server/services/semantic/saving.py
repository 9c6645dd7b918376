"""Saves statements: checks them, embeds them together outside of any transaction, and writes them in their order."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import Conflict, Signal, SignalType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import (
    FieldViolation,
    MnemonError,
    ThrottledError,
)
from mnemon_server.domain.records import RequestKey
from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic, SaveSemantic, SemanticMemory
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import DocumentWrite, Vector
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.semantic.checks import save_violations
from mnemon_server.services.semantic.decisions import relation_of_values, relation_values, stored_decision
from mnemon_server.services.semantic.event_linking import told_directly
from mnemon_server.services.semantic.health import Capacity, Room
from mnemon_server.services.semantic.resolver import NOT_JUDGED, Judged, NewSemantic, Resolver
from mnemon_server.services.semantic.stored_form import (
    as_duplicate,
    find_duplicate,
    given_statement,
    save_plain,
    to_document,
    to_semantic,
)
from mnemon_server.services.semantic.vectors import is_read, vectors_of
from mnemon_server.services.writing.write_pressure import WritePressure
from mnemon_server.services.writing.writes import (
    new_id,
    problem,
    request_key,
    settled,
    take_in,
    take_in_own,
    vector_bytes,
)

# The answers to saves in the form stored under their request ids: ids and numbers, without the saved text.


MICROSECOND = timedelta(microseconds=1)


def to_answer(saved: SavedSemantic) -> str:
    """The stored part of an answer; the signals of its conflicts are stored without their words."""
    receipt = saved.receipt
    values = {
        "id": receipt.id if receipt else "",
        "outcome": receipt.outcome if receipt else "",
        "revision": receipt.revision if receipt else 0,
        "duplicate": saved.duplicate,
        "conflicts": [_conflict_values(conflict) for conflict in saved.conflicts],
        "decision": saved.decision.decision_id if saved.decision else "",
    }
    return json.dumps({name: value for name, value in values.items() if value}, separators=(",", ":"))


def from_answer(vault: Vault, receipt: TransactionReceipt) -> SavedSemantic:
    """The answer to a replay: the first answer, with the current statement and decision. Blocks."""
    values = json.loads(receipt.answer)
    memory_id, decision_id = values.get("id", ""), values.get("decision", "")
    memory = _read(vault, memory_id) if memory_id else None
    decision = vault.collection(DECISIONS).get_documents([decision_id])[0] if decision_id else None
    return SavedSemantic(
        memory=to_semantic(memory) if memory else None,
        receipt=receipt.of_record(memory_id, values["outcome"], values["revision"]) if memory_id else None,
        duplicate=values.get("duplicate", False),
        conflicts=tuple(map(_conflict, values.get("conflicts", ()))),
        decision=stored_decision(decision) if decision else None,
    )


def with_receipt(saved: SavedSemantic, receipt: TransactionReceipt) -> SavedSemantic:
    """The answer to the first call, with the commit's time and position."""
    if saved.receipt is None:
        return saved
    written = replace(saved.receipt, commit_time=receipt.commit_time, sequence=receipt.sequence)
    return replace(saved, receipt=written)


def _read(vault: Vault, memory_id: str) -> Document | None:
    return vault.collection(SEMANTIC).get_documents([memory_id])[0]


def _conflict_values(conflict: Conflict) -> list[Any]:
    signals = [_signal_values(signal) for signal in conflict.signals]
    # A judge's reason may repeat words of the statements.
    relation = replace(conflict.relation, reason="") if conflict.relation else None
    return [conflict.memory_id, conflict.severity, signals, relation_values(relation)]


def _conflict(values: list[Any]) -> Conflict:
    # Answers of earlier programs end before the relation.
    memory_id, severity, signals, *relation = values
    return Conflict(memory_id, tuple(map(_signal, signals)), severity, relation_of_values(*(relation or [None])))


def _signal_values(signal: Signal) -> list[Any]:
    delta = None if signal.time_delta is None else signal.time_delta // MICROSECOND
    return [signal.type, signal.score, signal.bound, delta, signal.importance_delta]


def _signal(values: list[Any]) -> Signal:
    type_, score, bound, delta, importance_delta = values
    time_delta = None if delta is None else delta * MICROSECOND
    return Signal(SignalType(type_), score, bound, time_delta=time_delta, importance_delta=importance_delta)


class SaveProgram:
    """The part of a save inside its transaction; `saved` is the result of its last run."""

    def __init__(
        self, new: NewSemantic | None, memory: SemanticMemory, room: Room, capacity: Capacity, resolver: Resolver | None
    ) -> None:
        self.saved: SavedSemantic | None = None
        self.memory = memory
        """The statement, with the id that it gets if it is stored."""
        self._new = new
        self._room = room
        self._capacity = capacity
        self._resolver = resolver

    def __call__(self, tx: VaultTransaction) -> str:
        """Saves the statement of a caller, and returns the answer to store."""
        self.saved = told_directly(tx, self.save(tx), self.memory)
        return to_answer(self.saved)

    def save(self, tx: VaultTransaction) -> SavedSemantic:
        """Saves the statement. If there is no room for it, raises ThrottledError before anything is written."""
        if self._room is not Room.AMPLE:
            semantic = tx.collection(SEMANTIC)
            if (known := find_duplicate(semantic, self.memory)) is not None:
                return as_duplicate(known, tx.now)
            if self._room is Room.NONE or semantic.count_all() >= self._capacity.limit:
                raise self._capacity.error()
        assert self._new is not None  # noqa: S101 - if there is room, there is a vector
        if self._resolver is None or self._new.policy is ConflictPolicy.IGNORE:
            return save_plain(tx, self._new)
        return self._resolver.save(tx, self._new)


class SemanticSaving:
    """Saves statements; any number of calls at the same time."""

    def __init__(
        self,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        resolver: Resolver | None,
        pressure: WritePressure,
        capacity: Capacity,
        offload: Offload,
    ) -> None:
        self._vault = vault
        self._embedder = embedder
        self._resolver = resolver
        self._pressure = pressure
        self._capacity = capacity
        self._offload = offload

    async def save(self, requests: Sequence[SaveSemantic]) -> list[SavedSemantic | MnemonError]:
        """Saves statements in their order, with one result each; an invalid one does not affect the others."""
        return await take_in(requests, self._violations, self._save_own)

    def _violations(self, request: SaveSemantic) -> Iterator[FieldViolation]:
        yield from save_violations(request, self._embedder.model.dimension)
        if self._resolver is None and request.conflict_policy is not ConflictPolicy.IGNORE:
            yield FieldViolation("conflict_policy", "must be IGNORE: conflicts are not resolved here")

    async def _save_own(self, requests: Sequence[SaveSemantic]) -> Sequence[SavedSemantic | MnemonError]:
        return await take_in_own(requests, self._vault.collection(SEMANTIC).guard, _unnamed, self._save_timed)

    async def _save_timed(self, requests: Sequence[SaveSemantic]) -> Sequence[SavedSemantic | MnemonError]:
        # Before the time of the save, so that a slow judge holds no other writes back.
        judged = await self._judged(requests)
        try:
            with self._pressure.write(len(requests)):
                return await self._save_within_capacity(requests, judged)
        except ThrottledError as error:
            return [error] * len(requests)

    async def _judged(self, requests: Sequence[SaveSemantic]) -> Sequence[Judged]:
        """The judgements on the statements whose conflicts matter; empty for the others."""
        resolver = self._resolver
        if resolver is None or not resolver.has_judge:
            return [{}] * len(requests)

        async def judge(request: SaveSemantic) -> Judged:
            if request.conflict_policy is ConflictPolicy.IGNORE or await self._is_replay(request):
                return {}
            [vector] = await vectors_of(self._embedder, [request.memory.content], [request.embedding])
            # The save reports the error.
            return {} if isinstance(vector, MnemonError) else await resolver.judge(self._new(request, vector))

        return await asyncio.gather(*map(judge, requests))

    async def _is_replay(self, request: SaveSemantic) -> bool:
        return bool(request.request_id) and await self._offload(self._vault.is_answered, request.request_id)

    async def _save_within_capacity(
        self, requests: Sequence[SaveSemantic], judged: Sequence[Judged]
    ) -> Sequence[SavedSemantic | MnemonError]:
        room = self._capacity.claim(len(requests))
        claimed = 0 if room is Room.NONE else len(requests)
        writes: list[tuple[SaveProgram, Future[TransactionReceipt]] | MnemonError] = []
        try:
            programs = await self._programs(requests, judged, room)
            # All are handed over before the first is awaited, so they keep their order.
            for request, program in zip(requests, programs, strict=True):
                if isinstance(program, MnemonError):
                    writes.append(program)
                    continue
                future = self._vault.transact(program, request=_request_key(request, program.memory))
                if claimed:
                    claimed -= 1
                    # The caller may go away before the write is done.
                    future.add_done_callback(lambda _: self._capacity.release())
                writes.append((program, future))
        finally:
            self._capacity.release(claimed)
        return [
            write if isinstance(write, MnemonError) else await settled(self._saved(*write), "statement")
            for write in writes
        ]

    @asynccontextmanager
    async def prepared(
        self, requests: Sequence[SaveSemantic], judged: Sequence[Judged] = ()
    ) -> AsyncIterator[list[SaveProgram | MnemonError]]:
        """Yields one program for each statement, which saves it in a transaction of the caller, or its error.

        The transaction must end before the block does: until then, room is reserved, and the time counts as that of a
        save. No judge is asked; `judged` is what is known of each statement, or empty.

        Raises:
            ThrottledError: writes are held back.
        """
        problems = [problem(self._violations(request)) for request in requests]
        said = judged or [NOT_JUDGED] * len(requests)
        valid = [request for request, found in zip(requests, problems, strict=True) if found is None]
        known = [each for each, found in zip(said, problems, strict=True) if found is None]
        with self._pressure.write(max(1, len(valid))):
            room = self._capacity.claim(len(valid))
            try:
                programs = iter(await self._programs(valid, known, room))
                yield [found or next(programs) for found in problems]
            finally:
                if room is not Room.NONE:
                    self._capacity.release(len(valid))

    async def _programs(
        self, requests: Sequence[SaveSemantic], judged: Sequence[Judged], room: Room
    ) -> list[SaveProgram | MnemonError]:
        if room is Room.NONE:
            # Duplicates and replays are still answered: they need no embedding.
            return [self._program(None, self._memory(request), room) for request in requests]
        contents = [request.memory.content for request in requests]
        vectors = await vectors_of(self._embedder, contents, [request.embedding for request in requests])
        programs: list[SaveProgram | MnemonError] = []
        for request, vector, said in zip(requests, vectors, judged, strict=True):
            if isinstance(vector, MnemonError):
                programs.append(vector)
            else:
                new = replace(self._new(request, vector), judged=said)
                programs.append(self._program(new, new.memory, room))
        return programs

    def _program(self, new: NewSemantic | None, memory: SemanticMemory, room: Room) -> SaveProgram:
        return SaveProgram(new, memory, room, self._capacity, self._resolver)

    def _new(self, request: SaveSemantic, vector: Vector) -> NewSemantic:
        memory = self._memory(request)
        return NewSemantic(
            memory=memory,
            vector=vector,
            is_read=request.embedding is not None or is_read(self._embedder, memory.content),
            policy=request.conflict_policy,
            rule=request.rule,
        )

    @staticmethod
    def _memory(request: SaveSemantic) -> SemanticMemory:
        return replace(given_statement(request.memory), memory_id=new_id())

    async def _saved(self, program: SaveProgram, future: "Future[TransactionReceipt]") -> SavedSemantic:
        receipt = await completion(future)
        if receipt.replayed or program.saved is None:
            return await self._offload(from_answer, self._vault, receipt)
        return with_receipt(program.saved, receipt)


def _unnamed(request: SaveSemantic) -> DocumentWrite:
    """The statement as it would be stored, before it has an id."""
    return DocumentWrite(document=to_document(replace(given_statement(request.memory), memory_id="")), passages=())


def _request_key(request: SaveSemantic, memory: SemanticMemory) -> RequestKey | None:
    if not request.request_id:
        return None
    asked = document_digest(to_document(replace(memory, memory_id="")))
    given = vector_bytes(request.embedding)
    return request_key(request.request_id, "save", asked, given, request.conflict_policy, request.rule)
