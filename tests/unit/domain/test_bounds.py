"""Bounds of callers: which records exist for whom, for every kind of bounds."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from mnemon_server.domain.access.bounds import ENTRIES_MAX, UNBOUNDED, Bounds
from mnemon_server.domain.access.shares import Share
from mnemon_server.domain.collections import DOCUMENTS, FACTS, RULES, SEMANTIC, VERSIONS, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_matches
from mnemon_server.domain.errors import InvalidArgumentError, PermissionDeniedError
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.namespaces import Namespace, encode_namespace
from mnemon_server.domain.origins import Provenance
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.domain.validation import SCOPE_BYTES_MAX
from mnemon_server.engines.promises.vault import Vault

from tests.contract.vault_suite import DIMENSION, write
from tests.support.vaults import temporary_vault

USERS: Sequence[list[str]] = ([], ["*"], ["ada"], ["bob", "ada"], ["carl", "*"])
NAMESPACES: Sequence[list[str]] = ([], ["*"], ["users.ada"], ["users.bob", "users.ada"], ["users"], [r"users.ada\.x"])
BOUNDS = list(itertools.product(USERS, NAMESPACES))
OWNERS = ("", "ada", "bob", "eve")
PLACES = (
    ("users",),
    ("users", "ada"),
    ("users", "ada", "trips"),
    ("users", "adam"),
    ("users", "ada.x"),
    ("users", "ada", "x"),
    ("users", "ada\\", "x"),
    ("users", "bob"),
    ("common",),
)


def exists(users: list[str], namespaces: list[str], collection: Collection, name: str) -> bool:
    """What bounds mean, written down plainly. `name` is the user of a document, or the namespace of a fact."""
    if not users and not namespaces:
        return True
    if collection == DOCUMENTS:
        return "*" in users or name in users
    return "*" in namespaces or any(name == each or name.startswith(f"{each}.") for each in namespaces)


def written(labels: Sequence[str]) -> str:
    """A namespace as bounds name it."""
    return ".".join(label.replace("\\", "\\\\").replace(".", "\\.") for label in labels)


@pytest.fixture(scope="module")
def records() -> Iterator[tuple[Vault, dict[Collection, dict[str, str]]]]:
    """A vault with documents of several users and facts in several namespaces, and whose each one is, by its id."""
    with temporary_vault(dimension=DIMENSION) as vault:
        names: dict[Collection, dict[str, str]] = {DOCUMENTS: {}, FACTS: {}}
        for user in OWNERS:
            names[DOCUMENTS][f"of {user}"] = user
            vault.collection(DOCUMENTS).put_document(write(f"of {user}", "text", scope=Scope(user=user))).result()
        for labels in PLACES:
            doc_id = "/".join(labels)
            names[FACTS][doc_id] = written(labels)
            fields = {"namespace": encode_namespace(Namespace(labels))}
            vault.collection(FACTS).put_document(write(doc_id, "text", fields=fields)).result()
        yield vault, names


@pytest.mark.parametrize(("users", "namespaces"), BOUNDS, ids=str)
def test_a_record_is_found_if_and_only_if_it_exists_for_the_caller(
    records: tuple[Vault, dict[Collection, dict[str, str]]], users: list[str], namespaces: list[str]
) -> None:
    bounds = Bounds.of(users, namespaces)
    vault, names = records
    for collection, name_of in names.items():
        own = {doc_id for doc_id, name in name_of.items() if exists(users, namespaces, collection, name)}
        engine = vault.collection(collection)
        stored: list[Document] = [each for _, each in engine.list_documents(RecordFilter(), limit=100)]
        assert {each.doc_id for each in stored if bounds.admits(collection, each)} == own
        text = Condition("id", Operator.IN, (*list(name_of)[1:],))
        for where, matching in (
            (RecordFilter(), set(name_of)),
            (RecordFilter(expression=text), set(list(name_of)[1:])),
            *((RecordFilter(scope=Scope(user=user)), {f"of {user}"}) for user in OWNERS[1:] if collection == DOCUMENTS),
        ):
            found = engine.list_documents(bounds.restricted(collection, where), limit=100)
            assert {each.doc_id for _, each in found} == own & matching, where


@pytest.mark.parametrize(("users", "namespaces"), BOUNDS, ids=str)
def test_a_new_record_must_exist_for_the_caller(users: list[str], namespaces: list[str]) -> None:
    bounds = Bounds.of(users, namespaces)
    for user in OWNERS:
        only = users if users == ["ada"] and not user else [user]
        if exists(users, namespaces, DOCUMENTS, only[0]):
            assert bounds.owned(Scope(user=user, project="p")) == Scope(user=only[0], project="p")
        else:
            with pytest.raises(PermissionDeniedError, match=r"scope\.user must be ('ada'|one of a credential)"):
                bounds.owned(Scope(user=user))
    for labels in PLACES:
        text = encode_namespace(Namespace(labels))
        if exists(users, namespaces, FACTS, written(labels)):
            bounds.check_namespace(text)
        else:
            with pytest.raises(
                PermissionDeniedError, match=r"namespace must be within 'users|bound to users alone and has no facts"
            ):
                bounds.check_namespace(text)


@pytest.mark.parametrize(("users", "namespaces"), BOUNDS, ids=str)
def test_bounds_are_read_as_they_are_written(users: list[str], namespaces: list[str]) -> None:
    bounds = Bounds.of(users, namespaces)
    assert Bounds.of(bounds.user_texts, bounds.namespace_texts) == bounds
    assert bool(bounds) is any(
        not exists(users, namespaces, *each) for each in ((DOCUMENTS, "nobody"), (FACTS, "nowhere"))
    )
    assert bool(UNBOUNDED) is False


@pytest.mark.parametrize(
    ("namespaces", "spans"),
    [
        (["*"], None),
        (["users.ada"], [("users.ada.", "users.ada/")]),
        (
            ["users.ada.notes", "users.ada-1", "users.ada"],
            [("users.ada-1.", "users.ada-1/"), ("users.ada.", "users.ada/")],
        ),
    ],
)
def test_the_ranges_of_namespaces_do_not_overlap(namespaces: list[str], spans: list[tuple[str, str]] | None) -> None:
    assert Bounds.of(["ada"], namespaces).namespace_spans == spans


def test_a_caller_without_namespaces_has_no_ranges() -> None:
    assert Bounds.of(["ada"], []).namespace_spans == []


def test_bounds_that_cannot_be_are_refused_with_the_name_of_the_field() -> None:
    many = [f"u{number}" for number in range(ENTRIES_MAX)]
    assert Bounds.of(many, many).users == tuple(sorted(many))
    for users, namespaces, field in (
        ([*many, "one more"], [], "users"),
        ([], [*many, "more"], "namespaces"),
        (["ada", ""], [], "users[1]"),
        ([" "], [], "users[0]"),
        ([], ["users.\u200b"], "namespaces[0]"),
        (["x" * (SCOPE_BYTES_MAX + 1)], [], "users[0]"),
        (["a\0b"], [], "users[0]"),
        ([], ["users", "a..b"], "namespaces[1]"),
        ([], [""], "namespaces[0]"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            Bounds.of(users, namespaces)
        assert [violation.field for violation in caught.value.violations] == [field]


def test_shares_of_users_add_no_namespaces_and_the_other_way_round() -> None:
    of_user, of_namespace = Share(Scope("bob")), Share(namespace=Namespace(("users", "bob")))
    bounds = Bounds.of(["ada"], ["users.ada"]).sharing([of_user, of_namespace], "me")
    assert bounds.scopes() == (Scope("ada"), Scope("bob"))
    assert bounds.spaces() == (Namespace(("users", "ada")), Namespace(("users", "bob")))


def test_parts_of_a_user_that_a_call_could_mean_are_named() -> None:
    parts = [Share(Scope("bob", household="home")), Share(Scope("bob", project="garden"))]
    bounds = Bounds.of(["ada"], []).sharing(parts, "me")
    with pytest.raises(InvalidArgumentError, match="'bob' with project 'garden' or 'bob' with household 'home'"):
        bounds.selected(Scope("bob"))


def test_a_removal_in_what_is_shared_for_reading_is_refused_and_others_find_nothing_there() -> None:
    bounds = Bounds.of(["ada"], []).sharing([Share(Scope("bob"))], "me")
    for collection in (DOCUMENTS, SEMANTIC):
        with pytest.raises(PermissionDeniedError, match="for reading only"):
            bounds.restricted(collection, RecordFilter(scope=Scope("bob"), is_writing=True))
        own = bounds.restricted(collection, RecordFilter(scope=Scope("ada"), is_writing=True))
        assert own == RecordFilter(scope=Scope("ada"), is_writing=True)


def test_versions_exist_where_their_records_do() -> None:
    bounds = Bounds.of(["ada"], ["users.ada"])
    for user, labels, is_there in (
        ("ada", (), True),
        ("bob", (), False),
        ("", ("users", "ada"), True),
        ("ada", ("users", "bob"), False),
    ):
        fields = {"namespace": encode_namespace(labels) if labels else ""}
        version = Document("version", "text", scope=Scope(user), fields=fields)
        assert bounds.admits(VERSIONS, version) == is_there
        assert document_matches(version, bounds.restricted(VERSIONS, RecordFilter())) == is_there


SOURCES = (Scope(), Scope(origin="web"), Scope(origin="web", origin_name="a.example"), Scope(origin="tool"))


@pytest.mark.parametrize("bounds", [UNBOUNDED, Bounds.of(["ada"], [])])
@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ((Provenance("web", "a.example"),), (0, 1, 3)),
        ((Provenance("web"),), (0, 3)),
        ((Provenance("tool"), Provenance("web", "b.example")), (0, 1, 2)),
        ((Provenance("agent"), Provenance("")), (1, 2, 3)),
    ],
)
def test_records_in_quarantine_exist_for_no_caller(
    bounds: Bounds, hidden: tuple[Provenance, ...], shown: tuple[int, ...]
) -> None:
    seen = replace(bounds, hidden=hidden)
    assert seen and seen.is_bound == bounds.is_bound
    documents = [
        Document(f"{number}", "text", scope=replace(scope, user="ada")) for number, scope in enumerate(SOURCES)
    ]
    left = [documents[number] for number in shown]
    assert [each for each in documents if seen.admits(DOCUMENTS, each)] == left
    assert [each for each in documents if seen.writable(DOCUMENTS, each)] == left
    assert [each for each in documents if seen.may_change(each.scope)] == left
    with temporary_vault(dimension=DIMENSION) as vault:
        records = vault.collection(DOCUMENTS)
        for each in documents:
            records.put_document(write(each.doc_id, "text", scope=each.scope)).result()
        found = records.list_documents(seen.restricted(DOCUMENTS, RecordFilter()), limit=9)
        assert [document.doc_id for _, document in found] == [each.doc_id for each in left]
        assert seen.restricted(RULES, RecordFilter()) == RecordFilter()


@pytest.mark.parametrize("bounds", [UNBOUNDED, Bounds.of(["ada"], []), Bounds.of([], [], ["web"])])
def test_a_quarantine_changes_no_request_id(bounds: Bounds) -> None:
    seen, request = replace(bounds, hidden=(Provenance("web"),)), RequestKey("r", b"asked")
    assert seen.owner(b"secret") == bounds.owner(b"secret")
    assert bool(bounds.owner(b"secret")) == bool(bounds)
    assert seen.request(request, seen.owner(b"secret")) == bounds.request(request, bounds.owner(b"secret"))
