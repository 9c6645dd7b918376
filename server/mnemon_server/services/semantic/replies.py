"""The answers to saves as they are stored under their request ids: ids and numbers, no text of what was saved."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import Conflict, Signal, SignalType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import WriteOutcome, WriteReceipt
from mnemon_server.domain.semantic import SavedSemantic
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault
from mnemon_server.services.semantic.decisions import relation_of_values, relation_values, stored_decision
from mnemon_server.services.semantic.stored_form import to_semantic

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
    """The answer to a replay: the first answer, with the statement and the decision as they are now. Blocks."""
    values = json.loads(receipt.answer)
    memory_id, decision_id = values.get("id", ""), values.get("decision", "")
    memory = _read(vault, memory_id) if memory_id else None
    decision = vault.collection(DECISIONS).get_documents([decision_id])[0] if decision_id else None
    return SavedSemantic(
        memory=to_semantic(memory) if memory else None,
        receipt=_receipt(values, receipt) if memory_id else None,
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


def _receipt(values: Mapping[str, Any], receipt: TransactionReceipt) -> WriteReceipt:
    return WriteReceipt(
        values["id"],
        WriteOutcome(values["outcome"]),
        values["revision"],
        receipt.commit_time,
        replayed=True,
        sequence=receipt.sequence,
    )


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
