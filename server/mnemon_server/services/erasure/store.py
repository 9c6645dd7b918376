"""The erasure service: erases what a request names, proves it, and confirms it with a signed receipt.

An erasure is a task of its own. Callers follow it, and it goes on without them. Its state is in the vault, so an open
vault completes what a killed server began.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import system_clock, to_microseconds
from mnemon_server.domain.erasure import (
    RECEIPTS,
    REPLAY,
    EraseCounts,
    EraseFilter,
    EraseMessage,
    ErasePhase,
    EraseProgress,
    EraseTarget,
    ErasureReceipt,
    ErasureRequest,
)
from mnemon_server.domain.errors import FieldViolation, MnemonError, NotServingError
from mnemon_server.domain.filters import expression_violations
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import NAMES, Provenance, is_origin
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.domain.validation import (
    SCOPE_BYTES_MAX,
    id_violations,
    refuse,
    request_id_violations,
    scope_violations,
    text_violations,
)
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion, transacted
from mnemon_server.services.conflicts.relation_features import forget_readings
from mnemon_server.services.erasure.job import AFTER_US, Job, finish, stored_evidence, stored_job
from mnemon_server.services.erasure.proof import Proof, check
from mnemon_server.services.erasure.receipts import Sign, receipt_from_json, receipt_to_json, signed, subject_of
from mnemon_server.services.erasure.removal import Removal
from mnemon_server.services.erasure.selection import Selection, TargetSelection, TombstoneSelection, tombstones_of
from mnemon_server.services.erasure.settling import Settling
from mnemon_server.services.erasure.survey import Survey, Surveyor
from mnemon_server.services.erasure.traces import Traces, marked_answers
from mnemon_server.services.events.pruning import EventPruning
from mnemon_server.services.reading.filter_expressions import FIELDS_OF
from mnemon_server.services.semantic.terms import forget_terms
from mnemon_server.services.writing.tombstones import Names, names_of
from mnemon_server.services.writing.writes import replay, request_key

# Checks of requests.


_REFUSED = {
    RecordKind.RULE: "must not be RULE: rules belong to no one; delete them with DeleteRule",
    RecordKind.GRANT: "must not be GRANT: grants are erased with the user or the namespace; end one with RevokeGrant",
    RecordKind.VERSION: "must not be VERSION: versions are erased with the records that they are of",
    RecordKind.DECISION: "must not be DECISION: decisions are erased with the statements that they are about",
}


def erasure_violations(request: ErasureRequest) -> Iterator[FieldViolation]:
    """The violations in a request."""
    target = request.target
    yield from request_id_violations(request.request_id)
    if target.where is not None:
        yield from _filter_violations(target.where)
    elif target.source is not None:
        yield from _source_violations(target.source)
    elif target.namespace is None and not target.user:
        yield FieldViolation("target", "is required: set user, namespace, origin or filter")
    else:
        # A blank user, whom an earlier version stored, can be erased.
        yield from text_violations(target.user, "user", SCOPE_BYTES_MAX)
    other = "a filter" if target.where is not None else "an origin" if target.source is not None else ""
    if other and request.revoke_keys:
        yield FieldViolation("revoke_keys", f"must be left out with {other}: keys are bound to users and namespaces")


def _source_violations(source: Provenance) -> Iterator[FieldViolation]:
    if not is_origin(source.origin):
        yield FieldViolation("origin.origin", f"must be one of {NAMES}")
    yield from id_violations(source.name, "origin.name")


def _filter_violations(where: EraseFilter) -> Iterator[FieldViolation]:
    scope, expression = where.scope, where.expression
    if scope == Scope() and expression is None:
        yield FieldViolation("filter", "must have a scope or a filter: it would mean every record of its kind")
    if where.kind not in FIELDS_OF:
        yield FieldViolation("filter.kind", _REFUSED[where.kind])
        return
    if where.kind is not RecordKind.FACT:
        yield from scope_violations(scope, "filter.scope")
    elif scope != Scope():
        yield FieldViolation("filter.scope", "must be empty for facts, which have no scope; use a namespace")
    yield from expression_violations(expression, FIELDS_OF[where.kind])


READER_THREADS = 2
PROGRESS_S = 0.2
RETRY_S, RETRY_MAX_S = 1.0, 60.0
CHECKS_MAX = 3
RECORD_ID = "erasure"
OUT_OF_REACH = "backups, exports and copies that were made before"

log = logging.getLogger(__name__)
Some = TypeVar("Some", int, str)


@dataclass(slots=True)
class _Run:
    """A running erasure."""

    request: RequestKey | None
    progress: EraseProgress = field(default_factory=lambda: EraseProgress(ErasePhase.FINDING))
    problem: str = ""

    def report(self, phase: ErasePhase, done: int = 0, total: int = 0) -> None:
        """Notes how far it is."""
        self.progress = EraseProgress(phase, done, total, self.problem)


class Eraser:
    """Erases records of a vault. An async context manager that completes what was begun; belongs to one event loop."""

    def __init__(
        self,
        vault: Vault,
        *,
        pruning: EventPruning,
        settling: Settling,
        embedder: EmbeddingBatcher,
        sign: Sign,
        offload: Offload,
    ) -> None:
        """Erases nothing yet. The embedder keeps vectors of earlier texts, which it must forget."""
        self._vault = vault
        self._pruning = pruning
        self._settling = settling
        self._embedder = embedder
        self._sign = sign
        self._offload = offload
        self._turn = asyncio.Lock()
        self._runs: dict[asyncio.Task[ErasureReceipt], _Run] = {}

    async def __aenter__(self) -> Self:
        # A restored vault repeats its erasures before it serves anything.
        if (job := await self._offload(stored_job, self._vault)) is not None:
            log.info("an erasure goes on that was interrupted")
            run = _Run(job.request)
            resumed = self._start(run, self._resume(job, run))
            if job.replays:
                await resumed
        if after := await self._offload(self._vault.value, REPLAY):
            await self._replay(int(after))
        return self

    async def __aexit__(self, *exception: object) -> None:
        for task in self._runs:
            task.cancel()
        if self._runs:
            await asyncio.wait(self._runs)

    @property
    def public_key(self) -> bytes:
        """The key that verifies receipts: Ed25519, 32 bytes."""
        return self._sign(b"")[1]

    async def erase(self, request: ErasureRequest) -> AsyncGenerator[EraseMessage]:
        """Yields the progress, and at the end the receipt, or the counts of a dry run.

        If the caller leaves, the erasure goes on once it has begun to remove. A repeated request follows the first one,
        or gets its receipt.

        Raises:
            InvalidArgumentError: names the invalid fields.
            RequestIdReusedError: the request id belongs to another request.
            NotServingError: the server is shutting down; the erasure goes on after the next start.
            IndexWarmingError: the timeline is not loaded yet.
        """
        refuse([*erasure_violations(request)])
        selection = TargetSelection(self._vault, request.target)
        if request.dry_run:
            refuse(await self._offload(selection.unmet))
            yield EraseCounts(dict((await self._survey(Names(b""), selection, None)).counts))
            return
        flags = ["revoke_keys"] if request.revoke_keys else []
        key = request_key(request.request_id, "erase", repr(request.target), *flags)
        if (earlier := await replay(self._vault, key)) is not None:
            yield receipt_from_json(earlier.answer, replayed=True)
            return
        task = next((task for task, run in self._runs.items() if key is not None and run.request == key), None)
        if task is None:
            refuse(await self._offload(selection.unmet))
            run = _Run(key)
            task = self._start(run, self._begin(request.target, selection, run, revoke_keys=request.revoke_keys))
        async for message in self._follow(task, self._runs[task]):
            yield message

    async def wait(self) -> None:
        """Waits until no erasure is running. The vault is not unfinished after that, unless one failed."""
        while self._runs:
            await asyncio.wait([*self._runs])
        async with self._turn:
            # One that was killed, or met a full disk, before it had stored its job has left nothing to complete.
            if await self._offload(stored_job, self._vault) is None:
                await asyncio.to_thread(self._vault.set_unfinished, is_unfinished=False)

    async def receipts(self) -> list[ErasureReceipt]:
        """The receipts of all erasures, oldest first."""
        stored = await self._offload(self._vault.values, RECEIPTS)
        return [receipt_from_json(text) for text in stored.values()]

    # Running

    def _start(self, run: _Run, work: Any) -> "asyncio.Task[ErasureReceipt]":
        # In its own context: it goes on without the caller that started it.
        task: asyncio.Task[ErasureReceipt] = asyncio.create_task(work, context=Context())
        self._runs[task] = run
        task.add_done_callback(self._note_ended)
        return task

    def _note_ended(self, task: "asyncio.Task[ErasureReceipt]") -> None:
        self._runs.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("an erasure failed: %s", error)

    async def _follow(self, task: "asyncio.Task[ErasureReceipt]", run: _Run) -> AsyncIterator[EraseMessage]:
        told: EraseProgress | None = None
        while not task.done():
            if run.progress != told:
                told = run.progress
                yield told
            await asyncio.wait([task], timeout=PROGRESS_S)
        if task.cancelled():
            raise NotServingError("the server is shutting down; the erasure goes on after the next start")
        yield task.result()

    async def _begin(
        self,
        target: EraseTarget,
        selection: Selection,
        run: _Run,
        *,
        subject: Mapping[str, str] | None = None,
        revoke_keys: bool = False,
    ) -> ErasureReceipt:
        """Finds what there is, stores tombstones and job in one transaction, and completes the job."""
        async with self._turn:
            names = await transacted(self._vault, names_of)
            found = await self._survey(names, selection, run)
            keys = [*found.keys, *_subject_keys(names, target)]
            marks = await self._offload(Marks.of, found.runs.runs)
            job = Job(
                time_us=await self._offload(self._next_time),
                subject=subject or subject_of(target),
                counts=dict(found.counts),
                tombstones=len(keys),
                request_id=run.request.request_id if run.request else "",
                digest=run.request.digest.hex() if run.request else "",
                revoke_keys=revoke_keys,
            )

            def program(tx: VaultTransaction) -> None:
                tx.entomb(keys, job.time)
                job.store(tx, marks, found.probes)

            await asyncio.to_thread(self._vault.set_unfinished, is_unfinished=True)
            await transacted(self._vault, program)
            return await self._complete(job, names, selection, run)

    async def _replay(self, after_us: int) -> None:
        """Erases again what the tombstones name that are newer than the records of a restored vault."""
        log.info("what was erased after the restored backup is erased again")
        await self._offload(self._vault.events.wait_until_warm, RETRY_MAX_S)
        selection = await self._offload(TombstoneSelection, self._vault, await transacted(self._vault, names_of))
        subject = {"kind": "tombstones", AFTER_US: str(after_us)}
        await self._start(run := _Run(None), self._begin(EraseTarget(), selection, run, subject=subject))

    async def _resume(self, job: Job, run: _Run) -> ErasureReceipt:
        async with self._turn:
            names = await transacted(self._vault, names_of)
            await self._offload(self._vault.events.wait_until_warm, RETRY_MAX_S)
            selection = await self._offload(TombstoneSelection, self._vault, names)
            return await self._complete(job, names, selection, run)

    async def _complete(self, job: Job, names: Names, selection: Selection, run: _Run) -> ErasureReceipt:
        """Completes a job, however often it has to be tried."""
        delay_s = RETRY_S
        while True:
            try:
                return await self._attempt(job, names, selection, run)
            except MnemonError as error:
                log.warning("an erasure could not be completed, and is tried again: %s", error)
                run.problem = str(error)
                run.report(run.progress.phase)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_MAX_S)

    async def _attempt(self, job: Job, names: Names, selection: Selection, run: _Run) -> ErasureReceipt:
        run.report(ErasePhase.REMOVING)
        if job.revoke_keys:
            # Before anything is removed, because later writes of these callers would be missed.
            await self._settling.access.revoke(names, await self._offload(self._erased_in, job))
        removal = Removal(self._vault, names, job.time, self._pruning, self._offload)
        total = sum(job.counts.values())
        removing = asyncio.ensure_future(removal.run(selection))
        while not removing.done():
            await asyncio.wait([removing], timeout=PROGRESS_S)
            run.report(ErasePhase.REMOVING, min(removal.removed, total), total)
        removing.result()
        self._embedder.forget()
        forget_terms()
        forget_readings()
        run.report(ErasePhase.SETTLING)
        told = await transacted(self._vault, lambda tx: self._tell(tx, job))
        unreached = await self._settling.rewrite()
        erased = await self._offload(self._erased_in, job)
        traces = await self._forget_traces(Traces(self._vault, names, erased), told)
        proof, pending = await self._proof(names, erased, run)
        places = await self._settling.access.places(names, erased)
        said = self._said(job, proof, [*places, *unreached, *([pending] if pending else []), OUT_OF_REACH], traces)
        receipt = signed(said, self._sign)
        await completion(self._vault.transact(lambda tx: self._store(tx, job, receipt), request=job.request))
        await asyncio.to_thread(self._vault.set_unfinished, is_unfinished=False)
        log.info("erased %d records; %d files hold something of them", job.tombstones, len(proof.found))
        return receipt

    async def _forget_traces(self, traces: Traces, through: int) -> dict[str, int]:
        changes = await self._forget(traces.changes(through), lambda some, tx: tx.forget(changes=some))
        return {"change": changes, "answer": await self._forget_answers(traces.answers())}

    async def _forget_answers(self, pages: Iterator[list[str]]) -> int:
        return await self._forget(pages, lambda some, tx: tx.forget(answers=some))

    async def _forget(self, pages: Iterator[list[Some]], forget: Callable[[list[Some], VaultTransaction], int]) -> int:
        count, end = 0, list[Some]()
        while some := await self._offload(next, pages, end):
            count += await transacted(self._vault, partial(forget, some))
        return count

    async def _proof(self, names: Names, erased: set[bytes], run: _Run) -> tuple[Proof, str]:
        """Checks the files; once more if something was only about to leave them."""
        marks, probes = await self._offload(stored_evidence, self._vault)
        for attempt in range(CHECKS_MAX):
            left = await self._settling.wait(lambda done, total: run.report(ErasePhase.SETTLING, done, total))
            run.report(ErasePhase.CHECKING)
            proof = await asyncio.to_thread(check, self._vault, names, erased, marks, probes)
            if not proof.found or attempt == CHECKS_MAX - 1:
                break
            await asyncio.to_thread(self._vault.discard, [*proof.found])
            await self._forget_answers(marked_answers(self._vault, marks, proof.left))
        pending = f"{left} removed records that a longer read still needs" if left else ""
        return proof, pending

    # In transactions

    def _tell(self, tx: VaultTransaction, job: Job) -> int:
        """Tells watchers that records are gone whose removal they may have missed; returns the position before that."""
        tx.note_change(ChangeType.RECORDS_ERASED, RECORD_ID, details=json.dumps({"count": job.tombstones}))
        return self._vault.changes.state().head

    def _store(self, tx: VaultTransaction, job: Job, receipt: ErasureReceipt) -> str:
        text = receipt_to_json(receipt)
        tx.set_value(job.receipt_key, text)
        finish(tx, job)
        return text

    def _said(self, job: Job, proof: Proof, out_of_reach: Sequence[str], traces: dict[str, int]) -> dict[str, Any]:
        return {
            "begin_time": job.time.isoformat(),
            "end_time": system_clock().isoformat(),
            "subject": dict(job.subject),
            "revoke_keys": job.revoke_keys,
            "counts": {**job.counts, **traces},
            "tombstones": job.tombstones,
            "out_of_reach": list(out_of_reach),
            "scan": {
                "files": proof.files,
                "bytes": proof.bytes,
                "marks": proof.marks,
                "shared": proof.shared,
                "found": sorted(proof.found),
            },
            "neighbours_found": proof.neighbours,
        }

    # Reading

    async def _survey(self, names: Names, selection: Selection, run: _Run | None) -> Survey:
        surveyor = Surveyor(self._vault, names, marks=run is not None)

        def read() -> Survey:
            for count in surveyor.run(selection):
                if run is not None:
                    run.report(ErasePhase.FINDING, count)
            return surveyor.found

        await self._offload(self._vault.events.wait_until_warm, RETRY_S)
        return await self._offload(read)

    def _next_time(self) -> int:
        """A time that no earlier erasure has, and no earlier record is younger than."""
        head = self._vault.changes.state().head_time
        earlier = [*self._vault.values(RECEIPTS)]
        last = int(earlier[-1].removeprefix(RECEIPTS)) if earlier else 0
        now = max(system_clock(), head) if head else system_clock()
        return max(to_microseconds(now), last + 1)

    def _erased_in(self, job: Job) -> set[bytes]:
        """The tombstones of an erasure, or those that it replays."""
        first = int(job.subject.get(AFTER_US, job.time_us - 1)) + 1
        return {key for key, buried in tombstones_of(self._vault) if first <= to_microseconds(buried) <= job.time_us}


def _subject_keys(names: Names, target: EraseTarget) -> list[bytes]:
    if target.user:
        return [names.user(target.user)]
    return [names.namespace(target.namespace)] if target.namespace is not None else []
