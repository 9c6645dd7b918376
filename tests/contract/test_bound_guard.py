"""What is refused beforehand is what the write itself would refuse, and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.collections import DOCUMENTS, FACTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import MnemonError, PermissionDeniedError
from mnemon_server.domain.namespaces import Namespace, encode_namespace
from mnemon_server.domain.records import Scope
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.engines.promises.vault import Vault

from tests.contract.vault_suite import DIMENSION, ManualClock, key, write
from tests.support.vaults import temporary_vault

ADA = Bounds.of(["ada"], ["users.ada"])


@pytest.fixture
def vault() -> Iterator[Vault]:
    with temporary_vault(ManualClock(), dimension=DIMENSION) as opened:
        yield opened


def of(user: str, each: DocumentWrite) -> DocumentWrite:
    return replace(each, document=replace(each.document, scope=Scope(user=user)))


def error_of(records: RecordEngine, wanted: DocumentWrite) -> BaseException | None:
    try:
        return records.put_document(wanted).exception()
    except PermissionDeniedError as error:
        return error


def test_the_guard_refuses_what_the_write_would(vault: Vault) -> None:
    ada, everything = BoundVault(vault, ADA).collection(DOCUMENTS), vault.collection(DOCUMENTS)
    assert everything.guard is None
    for user, doc_id in (("ada", "hers"), ("bob", "his"), ("", "nobody's")):
        everything.put_document(of(user, write(doc_id, "window"))).result()
    refused = []
    for doc_id, user, revision in product(("hers", "his", "nobody's", "none's"), ("", "ada", "bob"), (None, 0, 1, 2)):
        wanted = replace(of(user, write(doc_id, "window")), expected_revision=revision)
        [found] = ada.guard.refusals([wanted])
        error = error_of(ada, wanted)
        refused.append(found is not None)
        if found is not None:
            assert (type(found), str(found)) == (type(error), str(error))
        else:
            # The caller's own record may have another revision, but belongs to no other caller.
            assert not isinstance(error, PermissionDeniedError)
            assert error is None or doc_id in ("hers", "none's")
    assert set(refused) == {True, False}


def test_several_writes_get_one_answer_each_and_a_write_without_an_id_is_judged_by_its_user(vault: Vault) -> None:
    vault.collection(DOCUMENTS).put_document(of("bob", write("his", "window"))).result()
    writes = [
        of(user, write(doc_id, "seat")) for doc_id, user in (("", "ada"), ("his", "ada"), ("", "bob"), ("new", ""))
    ]
    found = BoundVault(vault, ADA).collection(DOCUMENTS).guard.refusals(writes)
    assert [each is not None for each in found] == [False, True, True, False]


def test_a_request_that_has_an_answer_is_not_refused(vault: Vault) -> None:
    ada = BoundVault(vault, ADA).collection(DOCUMENTS)
    once = write("note", "window", request=key("once"))
    first = ada.put_document(once).result()
    given = of("bob", write("note", "window"))
    vault.collection(DOCUMENTS).put_document(given).result()
    assert ada.guard.refusals([once]) == [None]
    assert ada.put_document(once).result() == replace(first, replayed=True)
    for other in (write("note", "window", request=key("twice")), write("note", "window")):
        [refusal] = ada.guard.refusals([other])
        assert isinstance(refusal, MnemonError)


def test_facts_are_refused_by_their_namespace(vault: Vault) -> None:
    guard = BoundVault(vault, ADA).collection(FACTS).guard
    facts = [
        Document("", "", fields={"namespace": encode_namespace(Namespace(labels))})
        for labels in (("users", "ada"), ("users", "ada", "travel"), ("users", "bob"), ("users",))
    ]
    found = guard.refusals([DocumentWrite(document=fact, passages=()) for fact in facts])
    assert [each is not None for each in found] == [False, False, True, True]
