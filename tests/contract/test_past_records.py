"""A collection as of any moment equals a model of its changes then, even if parts were removed since."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC, VERSIONS, Collection, FieldType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.history import HistorySettings
from mnemon_server.domain.kinds import RecordKind, versions_of
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, PassageInput
from mnemon_server.engines.promises.vault import Vault

from tests.support.memory_stores import MovingClock
from tests.support.vaults import open_vault

DIMENSION = 8
WORDS = ("tea", "coffee", "heron", "river", "boat")
USERS = ("ada", "bob")
KINDS = (DOCUMENTS, MEMORIES, SEMANTIC, FACTS)
VERSIONS_MAX = 3
QUERY = np.eye(DIMENSION, dtype=np.float32)[0]
FIELDS: dict[str, dict[str, Any]] = {
    "document": {},
    "memory": {"decay_policy": "stable", "global": False},
    "semantic": {},
    "fact": {"fact_key": "k", "fact_value": "{}", "own_metadata": "{}", "indexing": "{}"},
}
"""The fields that are not empty."""


@dataclass(frozen=True)
class Op:
    """One step of a history: what is done, to which record, and with which word, score and user."""

    what: str
    record: str
    word: str
    score: int
    user: str


@dataclass
class Model:
    """The visible records after each step, and what must be missing: the moments before a removal."""

    moments: list[tuple[datetime, dict[str, Document]]] = field(default_factory=list)
    records: dict[str, Document] = field(default_factory=dict)
    versions: dict[str, list[datetime]] = field(default_factory=dict)

    def note(self, time: datetime) -> None:
        self.moments.append((time, {key: one for key, one in self.records.items() if not one.hidden}))


OPS = st.builds(
    Op,
    what=st.sampled_from(
        ("put", "put", "update", "update", "hide", "show", "delete", "remove for good", "erase user", "erase matching")
    ),
    record=st.sampled_from(("a", "b", "c")),
    word=st.sampled_from(WORDS),
    score=st.integers(0, 3),
    user=st.sampled_from(USERS),
)
HISTORIES = st.tuples(st.sampled_from(KINDS), st.lists(OPS, max_size=14))


class History:
    """Carries out a history in a vault and in a model of it."""

    def __init__(self, vault: Vault, collection: Collection, clock: MovingClock) -> None:
        self.vault, self.collection, self.clock = vault, collection, clock
        self.kind = RecordKind(collection.name)
        self.records = vault.collection(collection)
        self.model = Model()
        self.lost: list[tuple[datetime, datetime]] = []
        """The spans of which something was removed from the history."""
        self.since: dict[str, list[tuple[datetime, datetime, Document]]] = {}
        self.model.note(clock.time)

    def run(self, op: Op) -> None:
        self.clock.time += timedelta(seconds=1)
        getattr(self, "_" + op.what.replace(" ", "_"))(op)
        self.model.note(self.clock.time)

    def _document(self, op: Op) -> Document:
        fields = {**FIELDS[self.collection.name], **({"namespace": f"{op.user}."} if self.collection is FACTS else {})}
        scope = Scope() if self.collection is FACTS else Scope(user=op.user)
        empty = {FieldType.TEXT: "", FieldType.TEXTS: ()}
        complete = {each.name: fields.get(each.name, empty.get(each.type)) for each in self.collection.fields}
        return Document(op.record, f"{op.word} {op.record}", {"score": op.score}, scope=scope, fields=complete)

    def _passages(self, document: Document) -> list[PassageInput]:
        vector = np.zeros(DIMENSION, np.float32)
        vector[WORDS.index(document.content.split()[0])] = 1.0
        return [PassageInput(0, len(document.content), vector)]

    def _changed(self, record: str, new: Document | None) -> None:
        """Notes the version that a change leaves."""
        old = self.model.records.get(record)
        if old is not None:
            kept = self.since.setdefault(record, [])
            kept.append((old.update_time or self.clock.time, self.clock.time, old))
            while len(kept) > VERSIONS_MAX:
                begin, end, _ = kept.pop(0)
                self.lost.append((begin, end))
        if new is None:
            self.model.records.pop(record, None)
        else:
            self.model.records[record] = replace(new, update_time=self.clock.time)

    def _put(self, op: Op) -> None:
        document = self._document(op)
        old = self.model.records.get(op.record)
        write = DocumentWrite(document=document, passages=self._passages(document), change=ChangeType.MEMORY_UPDATED)
        self.records.put_document(write).result()
        if old is None or _content(old) != _content(document) or old.hidden:
            self._changed(op.record, document)

    def _update(self, op: Op) -> None:
        self._change(op.record, lambda old: replace(old, metadata={"score": op.score}))

    def _hide(self, op: Op) -> None:
        self._change(op.record, lambda old: replace(old, hidden=True))

    def _show(self, op: Op) -> None:
        self._change(op.record, lambda old: replace(old, hidden=False))

    def _change(self, record: str, change: Callable[[Document], Document]) -> None:
        update = DocumentUpdate(doc_id=record, update=change, change=ChangeType.MEMORY_UPDATED)
        self.records.update_document(update).result()
        old = self.model.records.get(record)
        if old is not None and (new := change(old)) != old:
            self._changed(record, new)

    def _delete(self, op: Op) -> None:
        self.records.delete_document(op.record, change=ChangeType.MEMORY_DELETED).result()
        if op.record in self.model.records:
            self._changed(op.record, None)

    def _remove_for_good(self, op: Op) -> None:
        self.records.delete_document(op.record, change=ChangeType.MEMORY_PURGED).result()
        old = self.model.records.pop(op.record, None)
        if old is not None:
            self.lost.append((old.update_time or self.clock.time, self.clock.time))
            self._lose(op.record, lambda _: True)

    def _erase_user(self, op: Op) -> None:
        """As an erasure does: the records of a user with all their versions, and the versions that were the user's."""

        def program(tx: Any) -> str:
            where = RecordFilter(expression=self._owned(op.user), hidden=None)
            ids = [document.doc_id for _, document in tx.collection(self.collection).list_documents(where, limit=99)]
            tx.collection(self.collection).delete_documents(where, change=ChangeType.MEMORY_DELETED)
            tx.collection(VERSIONS).delete_documents(where, change=None)
            if ids:
                tx.collection(VERSIONS).delete_documents(versions_of(self.kind, ids), change=None)
            return ""

        self.vault.transact(program).result()
        for record in [key for key, one in self.model.records.items() if _owner(one) == op.user]:
            self._changed(record, None)
            self._lose(record, lambda _: True)
        for record in list(self.since):
            self._lose(record, lambda old: _owner(old) == op.user)

    def _owned(self, user: str) -> Condition:
        if self.collection is FACTS:
            return Condition("namespace", Operator.EQ, (f"{user}.",))
        return Condition("user", Operator.EQ, (user,))

    def _erase_matching(self, op: Op) -> None:
        """Removes the versions with a word, though their records have another one by now."""

        def program(tx: Any) -> str:
            where = RecordFilter(expression=Condition("content", Operator.CONTAINS, (op.word,)), hidden=None)
            tx.collection(VERSIONS).delete_documents(where, change=None)
            return ""

        self.vault.transact(program).result()
        for record in list(self.since):
            self._lose(record, lambda old: op.word in old.content)

    def _lose(self, record: str, is_meant: Callable[[Document], bool]) -> None:
        kept = self.since.get(record, [])
        self.lost += [(begin, end) for begin, end, old in kept if is_meant(old)]
        self.since[record] = [each for each in kept if not is_meant(each[2])]

    # Comparing

    def known(self, time: datetime, recorded: dict[str, Document]) -> dict[str, Document]:
        """What is still known of the records of a moment."""
        known = {}
        for record, document in recorded.items():
            current = self.model.records.get(record)
            is_current = current is not None and (current.update_time or time) <= time
            if is_current or any(begin <= time < end for begin, end, _ in self.since.get(record, [])):
                known[record] = document
        return known

    def check(self) -> None:
        """Compares every moment, and the middle between two."""
        for number, (time, recorded) in enumerate(self.model.moments):
            known = self.known(time, recorded)
            past = self.vault.past(self.collection, time)
            listed = {document.doc_id: document for _, document in past.list_documents(RecordFilter(), limit=99)}
            assert {key: _content(one) for key, one in listed.items()} == {
                key: _content(one) for key, one in known.items()
            }, (number, time)
            assert past.count_documents(RecordFilter()) == len(known)
            got = past.get_documents(["a", "b", "c"])
            assert {one.doc_id: _content(one) for one in got if one and not one.hidden} == {
                key: _content(one) for key, one in known.items()
            }
            self._check_filters(time, known)
            self._check_searches(time, known)
            is_missing = self.vault.misses_history(self.collection, time)
            if not is_missing:
                assert known == recorded, (number, time)
            assert is_missing >= any(begin <= time < end for begin, end in self.lost)

    def _check_filters(self, time: datetime, known: dict[str, Document]) -> None:
        for user in USERS:
            where = RecordFilter(expression=self._owned(user))
            found = self.vault.past(self.collection, time).list_documents(where, limit=99)
            assert {one.doc_id for _, one in found} == {key for key, one in known.items() if _owner(one) == user}
        where = RecordFilter(equal={"score": 2})
        found = self.vault.past(self.collection, time).list_documents(where, limit=99)
        assert {one.doc_id for _, one in found} == {key for key, one in known.items() if one.metadata["score"] == 2}
        pages, after = [], 0
        past = self.vault.past(self.collection, time)
        while page := past.list_documents(RecordFilter(), after=after, limit=1):
            pages += [document.doc_id for _, document in page]
            after = page[-1][0]
        assert sorted(pages) == sorted(known)

    def _check_searches(self, time: datetime, known: dict[str, Document]) -> None:
        past = self.vault.past(self.collection, time)
        scores = past.scan_vectors(QUERY, past.match_passages(RecordFilter()))
        near = dict(zip(scores.passage_ids.tolist(), scores.scores.tolist(), strict=True))
        places = past.locate_passages(scores.passage_ids.tolist())
        assert {place.doc_id: near[place.passage_id] for place in places} == {
            key: float(one.content.startswith(WORDS[0])) for key, one in known.items()
        }
        for word in WORDS[:2]:
            found = past.search_keywords(word)
            places = past.locate_passages(found.passage_ids.tolist())
            assert {place.doc_id for place in places} == {key for key, one in known.items() if word in one.content}


def _content(document: Document) -> tuple[Any, ...]:
    return document.content, dict(document.metadata), _owner(document)


def _owner(document: Document) -> str:
    return document.scope.user or str(document.fields.get("namespace") or "").removesuffix(".")


def replay(collection: Collection, ops: list[Op]) -> None:
    """Carries out a history, and compares it with its model."""
    clock = MovingClock()
    with TemporaryDirectory() as folder:
        kept = HistorySettings(VERSIONS_MAX, timedelta(days=90))
        with closing(open_vault(Path(folder), clock, dimension=DIMENSION, history=kept)) as vault:
            history = History(vault, collection, clock)
            for op in ops:
                history.run(op)
            history.check()


@given(HISTORIES)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_moment_is_as_its_model_remembers_it(history: tuple[Collection, list[Op]]) -> None:
    replay(*history)


@pytest.mark.exhaustive
@given(HISTORIES)
@settings(
    max_examples=2_000,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_every_moment_of_thousands_of_histories_is_as_its_model_remembers_it(
    history: tuple[Collection, list[Op]],
) -> None:
    replay(*history)
