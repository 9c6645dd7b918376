"""Shares: a caller sees exactly the shared records, and changes only records in writable shares."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.access.shares import Share
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import DECISIONS, DOCUMENTS, FACTS, RULES, SEMANTIC, VERSIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    MnemonError,
    PermissionDeniedError,
    RequestIdReusedError,
)
from mnemon_server.domain.events import EventSelection, PruneReason
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.history import HistorySettings
from mnemon_server.domain.namespaces import Namespace, encode_namespace
from mnemon_server.domain.records import Scope, WriteOutcome, WriteReceipt
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.related import RelatedQuery
from mnemon_server.engines.promises.values import DocumentUpdate
from mnemon_server.engines.promises.vault import Vault, VaultTransaction

from tests.contract.timeline_suite import append, happening, try_append
from tests.contract.vault_suite import DIMENSION, ManualClock, key, listed, unit_vector, write
from tests.support.server import WAIT_S
from tests.support.vaults import temporary_vault

OWN, WHOLE = Scope("ada"), Scope("bob")
GARDEN, HOUSE = Scope("eve", project="garden"), Scope("eve", project="house")
SCOPES = (OWN, replace(OWN, agent="one"), WHOLE, replace(WHOLE, project="garden"), GARDEN, replace(GARDEN, agent="one"))
SCOPES += (HOUSE, Scope("eve"), Scope("carl"), Scope())
PLACES = (("users", "ada"), ("users", "bob"), ("users", "bob", "trips"), ("users", "bobby"), ("team",), ("users",))
READ, WRITE = False, True
TEAM = Share(namespace=Namespace(("team",)))


def sharing(*shares: Scope | tuple[str, ...], may_write: bool = READ, holder: str = "key:1") -> Bounds:
    """Ada's bounds with these shares."""
    made = (
        Share(each, may_write=may_write)
        if isinstance(each, Scope)
        else Share(namespace=Namespace(each), may_write=may_write)
        for each in shares
    )
    return Bounds.of(["ada"], ["users.ada"]).sharing(made, holder)


def plus(bounds: Bounds, *shares: Scope | tuple[str, ...], may_write: bool) -> Bounds:
    """The bounds with further shares."""
    more = sharing(*shares, may_write=may_write).shares
    return bounds.sharing([*bounds.shares, *more], bounds.holder)


BOUNDS = {
    "nothing": sharing(),
    "a user": sharing(WHOLE),
    "a project": sharing(GARDEN),
    "two projects": sharing(GARDEN, HOUSE),
    "much": sharing(WHOLE, GARDEN, ("users", "bob"), ("team",)),
    "a user to write": sharing(WHOLE, ("users", "bob", "trips"), may_write=WRITE),
    "a project to write, a user to read": plus(
        sharing(GARDEN, may_write=WRITE), WHOLE, Scope("eve"), ("team",), may_write=READ
    ),
}


def has(bounds: Bounds, scope: Scope, *, writing: bool = False) -> bool:
    """What shares mean, written down plainly."""
    parts = [OWN, *(each.scope for each in bounds.shares if not each.namespace and (each.may_write or not writing))]
    return any(
        all(
            getattr(part, name) in ("", getattr(scope, name))
            for name in ("user", "household", "persona", "agent", "project")
        )
        for part in parts
    )


def has_place(bounds: Bounds, place: tuple[str, ...], *, writing: bool = False) -> bool:
    shared = [tuple(each.namespace) for each in bounds.shares if each.namespace and (each.may_write or not writing)]
    return any(place[: len(each)] == each for each in [("users", "ada"), *shared])


def whole_users(bounds: Bounds) -> set[str]:
    """The users of whom the caller may read everything."""
    scopes = [each.scope for each in bounds.shares if not each.namespace]
    return {each.user for each in scopes if each == Scope(each.user)} | {"ada"}


def name_of(scope: Scope) -> str:
    return f"{scope.user}/{scope.project}/{scope.agent}"


@pytest.fixture
def vault() -> Iterator[Vault]:
    """A document, a statement and a decision in each scope, and a fact in each place."""
    kept = HistorySettings(3, timedelta(days=90))
    with temporary_vault(ManualClock(), dimension=DIMENSION, history=kept) as opened:
        assert opened.events.wait_until_warm(WAIT_S)
        for collection, scope in product((DOCUMENTS, SEMANTIC, DECISIONS), SCOPES):
            opened.collection(collection).put_document(write(name_of(scope), "window", scope=scope)).result()
        for place in PLACES:
            fields = {"namespace": encode_namespace(Namespace(place))}
            opened.collection(FACTS).put_document(write("/".join(place), "window", fields=fields)).result()
        yield opened


@pytest.fixture(params=BOUNDS, ids=str)
def bounds(request: pytest.FixtureRequest) -> Bounds:
    return BOUNDS[request.param]


def test_exactly_what_is_shared_exists(vault: Vault, bounds: Bounds) -> None:
    mine = BoundVault(vault, bounds)
    for collection in (DOCUMENTS, SEMANTIC):
        engine = mine.collection(collection)
        for where in (
            {},
            {"user": "bob"},
            {"user": "eve"},
            {"project": "garden"},
            {"user": "eve", "project": "house"},
            {"agent": "one"},
        ):
            scope = Scope(**where)
            expected = [
                name_of(each)
                for each in SCOPES
                if has(bounds, each) and all(getattr(each, name) == value for name, value in where.items())
            ]
            assert sorted(listed(engine, RecordFilter(scope=scope))) == sorted(expected), where
            assert engine.count_documents(RecordFilter(scope=scope)) == len(expected)
        found = engine.get_documents([name_of(each) for each in SCOPES])
        assert [document is not None for document in found] == [has(bounds, each) for each in SCOPES]
    facts = mine.collection(FACTS)
    own = ["/".join(place) for place in PLACES if has_place(bounds, place)]
    assert sorted(listed(facts)) == sorted(own)
    assert sorted(facts.distinct_texts("namespace", limit=50)) == sorted(
        encode_namespace(Namespace(place)) for place in PLACES if has_place(bounds, place)
    )


def test_a_decision_exists_only_for_those_who_may_read_all_of_its_user(vault: Vault, bounds: Bounds) -> None:
    users = whole_users(bounds)
    decisions = BoundVault(vault, bounds).collection(DECISIONS)
    assert (listed(decisions, RecordFilter(scope=GARDEN)) == []) is ("eve" not in users)
    shown = listed(decisions)
    assert sorted(shown) == sorted(name_of(each) for each in SCOPES if each.user in users)


def test_versions_exist_as_their_records_do(vault: Vault, bounds: Bounds) -> None:
    for collection in (DOCUMENTS, FACTS):
        for document in [each for _, each in vault.collection(collection).list_documents(RecordFilter(), limit=50)]:
            vault.collection(collection).delete_document(document.doc_id).result()
    versions = BoundVault(vault, bounds).collection(VERSIONS)
    everything = vault.collection(VERSIONS).list_documents(RecordFilter(hidden=True), limit=50)
    admitted = {each.fields["record_id"] for _, each in everything if bounds.admits(VERSIONS, each)}
    found = {each.fields["record_id"] for _, each in versions.list_documents(RecordFilter(hidden=True), limit=50)}
    assert found == admitted
    assert found == {
        *(name_of(each) for each in SCOPES if has(bounds, each)),
        *("/".join(place) for place in PLACES if has_place(bounds, place)),
    }


def writes(engine: RecordEngine, document: Document) -> Iterator[tuple[str, Callable[[], WriteReceipt]]]:
    """Every way to write a stored record, by name."""
    doc_id, changed = document.doc_id, replace(document, metadata={"topic": "changed"})
    put = replace(write(doc_id), document=changed)
    update = DocumentUpdate(doc_id=doc_id, update=lambda _: changed, change=ChangeType.KNOWLEDGE_INDEXED)
    yield "put", lambda: engine.put_document(put).result()
    yield "put several", lambda: raised(engine.put_documents([put]).result()[0])
    yield "update", lambda: engine.update_document(update).result()
    yield "delete", lambda: engine.delete_document(doc_id).result()


def raised(result: WriteReceipt | Exception) -> WriteReceipt:
    if isinstance(result, Exception):
        raise result
    return result


def test_what_may_only_be_read_is_not_changed_by_any_write(vault: Vault, bounds: Bounds) -> None:
    mine = BoundVault(vault, bounds)
    before = {each: vault.collection(each).list_documents(RecordFilter(), limit=50) for each in (DOCUMENTS, FACTS)}
    for collection, rows in before.items():
        for _, document in rows:
            place = str(document.fields.get("namespace", "")).removesuffix(".")
            labels = tuple(place.split("."))
            readable = has_place(bounds, labels) if place else has(bounds, document.scope)
            writable = has_place(bounds, labels, writing=True) if place else has(bounds, document.scope, writing=True)
            assert bounds.admits(collection, document) == readable
            assert bounds.writable(collection, document) == writable
            if writable:
                continue
            for name, call in writes(mine.collection(collection), document):
                if readable:
                    with pytest.raises(PermissionDeniedError, match="shared with you for reading only"):
                        call()
                elif name in ("update", "delete"):
                    assert call().outcome is WriteOutcome.MISSING
                else:
                    with pytest.raises(MnemonError, match=r"your credential is bound to that|is taken"):
                        call()
        assert vault.collection(collection).list_documents(RecordFilter(), limit=50) == rows


def test_what_may_be_written_is_changed_by_every_write(vault: Vault) -> None:
    bounds = sharing(WHOLE, GARDEN, ("team",), may_write=WRITE)
    mine = BoundVault(vault, bounds)
    for collection, doc_id in ((DOCUMENTS, name_of(WHOLE)), (DOCUMENTS, name_of(GARDEN)), (FACTS, "team")):
        [document] = vault.collection(collection).get_documents([doc_id])
        assert document is not None
        outcomes = [call() for _, call in writes(mine.collection(collection), document)]
        assert [each.outcome for each in outcomes] == [
            WriteOutcome.REPLACED,
            WriteOutcome.UNCHANGED,
            WriteOutcome.UNCHANGED,
            WriteOutcome.DELETED,
        ]


def test_a_record_is_moved_only_to_where_the_caller_may_write(vault: Vault) -> None:
    mine = BoundVault(vault, plus(sharing(GARDEN, may_write=WRITE), WHOLE, may_write=READ)).collection(DOCUMENTS)
    for scope, error in (
        (WHOLE, "reading only"),
        (HOUSE, "'eve' with project 'garden'"),
        (Scope("carl"), "'ada' or 'eve'"),
    ):
        moved = DocumentUpdate(
            doc_id=name_of(OWN),
            update=lambda stored, scope=scope: replace(stored, scope=scope),
            change=ChangeType.KNOWLEDGE_INDEXED,
        )  # type: ignore[misc]
        with pytest.raises(PermissionDeniedError, match=error):
            mine.update_document(moved).result()
        with pytest.raises(PermissionDeniedError, match=error):
            mine.put_document(write("new", scope=scope)).result()
    assert mine.put_document(write("new", scope=replace(GARDEN, agent="two"))).result().outcome is WriteOutcome.CREATED
    assert mine.put_document(write("mine", scope=Scope())).result().outcome is WriteOutcome.CREATED
    [stored] = vault.collection(DOCUMENTS).get_documents(["mine"])
    assert stored is not None
    assert stored.scope == OWN


def test_a_guard_refuses_what_the_write_would(vault: Vault) -> None:
    guard = BoundVault(vault, plus(sharing(WHOLE), GARDEN, may_write=WRITE)).collection(DOCUMENTS).guard
    wanted = [write(name_of(each), scope=OWN) for each in (OWN, WHOLE, GARDEN, HOUSE)]
    found = guard.refusals(wanted)
    denied, taken = PermissionDeniedError, type(wanted[3].taken())
    assert [type(each) for each in found] == [type(None), denied, denied, taken]
    assert guard.refusals([write(name_of(GARDEN), scope=GARDEN)]) == [None]


def test_a_removal_by_filter_leaves_out_what_may_only_be_read_and_shared_records_of_users_that_it_does_not_name(
    vault: Vault,
) -> None:
    engine = BoundVault(vault, plus(sharing(WHOLE), GARDEN, may_write=WRITE)).collection(DOCUMENTS)
    everything = RecordFilter(is_writing=True)
    of_garden = replace(everything, scope=GARDEN)
    assert (engine.count_documents(everything), engine.count_documents(of_garden)) == (2, 2)
    for where in (RecordFilter(), RecordFilter(scope=WHOLE), replace(everything, scope=WHOLE)):
        with pytest.raises(PermissionDeniedError, match="reading only"):
            engine.delete_documents(where).result()
    assert engine.delete_documents(replace(everything, scope=Scope("carl"))).result().deleted_count == 0
    for where, gone in ((everything, OWN), (of_garden, GARDEN)):
        before = listed(vault.collection(DOCUMENTS))
        assert engine.delete_documents(where).result().deleted_count == 2
        removed = {name_of(gone), name_of(replace(gone, agent="one"))}
        assert set(before) - set(listed(vault.collection(DOCUMENTS))) == removed


def test_a_removal_within_a_transaction_is_refused_as_a_whole(vault: Vault) -> None:
    mine, before = BoundVault(vault, sharing(WHOLE)), listed(vault.collection(DOCUMENTS))
    named = RecordFilter()
    with pytest.raises(PermissionDeniedError, match="reading only"):
        mine.transact(lambda tx: str(tx.collection(DOCUMENTS).delete_documents(named, change=None))).result()
    with pytest.raises(PermissionDeniedError, match="reading only"):
        mine.transact(lambda tx: str(tx.collection(DOCUMENTS).delete_document(name_of(WHOLE), change=None))).result()
    assert listed(vault.collection(DOCUMENTS)) == before


def test_statements_are_related_to_those_that_exist_and_in_a_write_to_those_that_may_be_written(vault: Vault) -> None:
    mine = BoundVault(vault, plus(sharing(GARDEN, may_write=WRITE), HOUSE, WHOLE, may_write=READ))
    for user, readable, writable in (
        ("ada", [OWN, replace(OWN, agent="one")], [OWN, replace(OWN, agent="one")]),
        ("bob", [WHOLE, replace(WHOLE, project="garden")], []),
        ("eve", [GARDEN, replace(GARDEN, agent="one"), HOUSE], [GARDEN, replace(GARDEN, agent="one")]),
        ("carl", [], []),
    ):
        query = RelatedQuery(user=user, vector=unit_vector(0), similarity_above=-1.0)
        found = mine.collection(SEMANTIC).related_documents(query)
        assert list(found.doc_ids) == [name_of(each) for each in readable]
        assert len(found.positions) == len(found.similarities) == len(readable)
        told: list[str] = []

        def look(tx: VaultTransaction, query: RelatedQuery = query, told: list[str] = told) -> str:
            told += tx.collection(SEMANTIC).related_documents(query).doc_ids
            return ""

        mine.transact(look).result()
        assert told == [name_of(each) for each in writable]


def test_what_is_shared_to_write_is_still_limited_to_the_origins_of_the_caller(vault: Vault) -> None:
    bounds = replace(sharing(GARDEN, may_write=WRITE), origins=("web",))
    mine = BoundVault(vault, bounds).collection(DOCUMENTS)
    with pytest.raises(PermissionDeniedError, match="the record's origin is not set, and must be 'web'"):
        mine.delete_document(name_of(GARDEN)).result()
    assert mine.put_document(write("scraped", scope=GARDEN)).result().outcome is WriteOutcome.CREATED
    [stored] = vault.collection(DOCUMENTS).get_documents(["scraped"])
    assert stored is not None
    assert stored.scope == replace(GARDEN, origin="web")
    assert mine.delete_document("scraped").result().outcome is WriteOutcome.DELETED


def test_a_caller_with_all_users_or_all_namespaces_has_all_of_a_kind(vault: Vault) -> None:
    appended(vault)
    for bounds, collections in (
        (
            Bounds.of(["*"], ["users.ada"]).sharing([TEAM], "key:1"),
            (DOCUMENTS, DECISIONS),
        ),
        (Bounds.of(["ada"], ["*"]).sharing([Share(GARDEN)], "key:1"), (FACTS,)),
    ):
        mine = BoundVault(vault, bounds)
        for collection in (DOCUMENTS, DECISIONS, FACTS):
            engine = vault.collection(collection)
            stored = [document for _, document in engine.list_documents(RecordFilter(), limit=50)]
            own = listed(mine.collection(collection))
            assert own == [each.doc_id for each in stored if bounds.admits(collection, each)]
            assert (len(own) == len(stored)) is (collection in collections)
    everybody = BoundVault(vault, Bounds.of(["*"], ["users.ada"])).events
    assert everybody.count(EventSelection()) == len(SCOPES)
    assert everybody.count(EventSelection(scope=HOUSE)) == 1


def test_an_error_names_where_the_caller_may_write() -> None:
    bounds = Bounds.of([], ["users.ada", "team"])
    with pytest.raises(PermissionDeniedError, match=r"namespace must be within 'team' or 'users\.ada': your"):
        bounds.check_namespace(encode_namespace(Namespace(("users", "bob"))))
    with pytest.raises(PermissionDeniedError, match="one of a credential that has any"):
        bounds.selected(Scope())
    with pytest.raises(PermissionDeniedError, match="must be 'ada' or 'bob'"):
        Bounds.of(["ada", "bob"], []).selected(Scope())


def test_rules_and_versions_are_written_by_no_caller_with_bounds() -> None:
    everything = Bounds.of(["*"], ["users.ada"])
    document = Document("one", "text", fields={"namespace": ""})
    assert [everything.writable(each, document) for each in (DOCUMENTS, DECISIONS, RULES, VERSIONS)] == [
        True,
        True,
        False,
        False,
    ]
    assert sharing(GARDEN, may_write=WRITE).writable(DECISIONS, replace(document, scope=GARDEN))


# Events


def appended(vault: Vault) -> None:
    append(vault.events, *(happening(name_of(each), scope=each) for each in SCOPES))


def test_a_call_about_one_user_reads_the_part_that_is_shared(vault: Vault) -> None:
    appended(vault)
    events = BoundVault(vault, sharing(WHOLE, GARDEN)).events
    for scope, part in (
        (Scope(), OWN),
        (WHOLE, WHOLE),
        (Scope("eve"), GARDEN),
        (GARDEN, GARDEN),
        (Scope(agent="one"), replace(OWN, agent="one")),
    ):
        expected = [
            name_of(each)
            for each in SCOPES
            if name_of(part).split("/")[0] == each.user
            and part.project in ("", each.project)
            and part.agent in ("", each.agent)
        ]
        found = events.window(EventSelection(scope=scope), limit=50)
        assert sorted(event.position.event_id for event in found.events) == sorted(expected)
        assert found.total == 2
        assert events.count(EventSelection(scope=scope)) == len(expected)
    for scope in (HOUSE, Scope("carl")):
        with pytest.raises(
            PermissionDeniedError, match=r"scope\.user must be 'ada' or 'bob' or 'eve' with project 'garden'"
        ):
            events.count(EventSelection(scope=scope))
    shown = [event is not None for event in events.get([name_of(each) for each in SCOPES])]
    assert shown == [has(sharing(WHOLE, GARDEN), each) for each in SCOPES]


def test_of_several_parts_of_a_user_the_call_names_one(vault: Vault) -> None:
    appended(vault)
    events = BoundVault(vault, sharing(GARDEN, HOUSE)).events
    parts = "'eve' with project 'garden' or 'eve' with project 'house'"
    with pytest.raises(InvalidArgumentError, match=f"must name one of the parts that are shared with you: {parts}"):
        events.count(EventSelection(scope=Scope("eve")))
    assert events.count(EventSelection(scope=HOUSE)) == 1
    by_agent = BoundVault(vault, sharing(GARDEN, Scope("eve", agent="one"))).events
    with pytest.raises(InvalidArgumentError, match="'eve' with project 'garden' or 'eve' with agent 'one'"):
        by_agent.count(EventSelection(scope=Scope("eve")))
    also = BoundVault(vault, sharing(GARDEN, Scope("eve"))).events
    assert also.count(EventSelection(scope=Scope("eve"))) == 4


def test_events_are_added_and_removed_where_the_caller_may_write(vault: Vault) -> None:
    appended(vault)
    bounds = plus(sharing(WHOLE), GARDEN, may_write=WRITE)
    events = BoundVault(vault, bounds).events
    new = [happening(f"new {name_of(each)}", scope=each) for each in SCOPES[:-1]]
    added = try_append(events, new)
    assert [not isinstance(each, MnemonError) for each in added] == [
        has(bounds, each, writing=True) for each in SCOPES[:-1]
    ]
    stored = {event.position.event_id: event for event in vault.events.get([name_of(each) for each in SCOPES]) if event}
    for each in SCOPES:
        event = stored[name_of(each)]
        if has(bounds, each, writing=True):
            assert events.prune([event], PruneReason.REQUESTED).result() == 1
        else:
            with pytest.raises(PermissionDeniedError, match="reading only" if has(bounds, each) else "whole tenant"):
                events.prune([event], PruneReason.REQUESTED)


# The feed


def test_the_feed_has_the_changes_of_what_is_shared(vault: Vault, bounds: Bounds) -> None:
    where, changes = ChangeFilter(bounds=bounds), []
    for collection in (DOCUMENTS, SEMANTIC):
        for scope in SCOPES:
            kind = ChangeType.KNOWLEDGE_INDEXED if collection == DOCUMENTS else ChangeType.CONFLICT_RESOLVED
            written = replace(write(f"a {name_of(scope)}", "seat", scope=scope), change=kind)
            vault.collection(collection).put_document(written).result()
    users = whole_users(bounds)
    everything = vault.changes.read(0, where=ChangeFilter(), limit=500).changes
    selected = vault.changes.read(0, where=where, limit=500).changes
    assert [each for each in everything if where.matches(each)] == list(selected)
    changes = [(each.type, each.record_id) for each in selected if each.record_id.startswith("a ")]
    assert changes == [
        *((ChangeType.KNOWLEDGE_INDEXED, f"a {name_of(each)}") for each in SCOPES if has(bounds, each)),
        *((ChangeType.CONFLICT_RESOLVED, f"a {name_of(each)}") for each in SCOPES if each.user in users),
    ]


# Request ids


def test_a_request_id_outlives_what_others_share_and_tells_nothing_to_callers_without_the_share(vault: Vault) -> None:
    alone, shared = sharing(), sharing(WHOLE, may_write=WRITE)
    assert alone.digest(b"", b"") == shared.digest(b"", b"")
    before, after = BoundVault(vault, alone).collection(DOCUMENTS), BoundVault(vault, shared).collection(DOCUMENTS)
    own, his = write("one", request=key("one")), write("two", scope=WHOLE, request=key("two"))
    assert not before.put_document(own).result().replayed
    assert after.put_document(own).result().replayed
    assert not after.put_document(his).result().replayed
    assert after.delete_document(name_of(WHOLE), request=key("three")).result().outcome is WriteOutcome.DELETED
    assert before.delete_document(name_of(WHOLE), request=key("three")).result().replayed
    another = BoundVault(vault, sharing(holder="key:2")).collection(DOCUMENTS)
    with pytest.raises(RequestIdReusedError):
        another.delete_document(name_of(WHOLE), request=key("three")).result()
    assert another.put_document(own).result().replayed


# The bounds themselves


def test_shares_of_what_is_ones_own_are_left_out_and_their_order_means_nothing() -> None:
    shares = [
        Share(WHOLE),
        Share(replace(OWN, project="p"), may_write=True),
        Share(namespace=Namespace(("users", "ada", "x"))),
    ]
    bounds = Bounds.of(["ada"], ["users.ada"])
    assert bounds.sharing(shares, "key:1").shares == (Share(WHOLE),)
    both = [Share(WHOLE), Share(GARDEN, may_write=True), TEAM, Share(namespace=Namespace(("club",)))]
    assert bounds.sharing(both, "k") == bounds.sharing(both[::-1], "k")
    assert not Bounds.of(["*"], ["*"]).sharing(both, "k").shares
