"""Documents of other scopes and folders whose ids a command is about to reuse."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from mnemon._cli.documents.sources import FILE_NAME, FOLDER, PATH_IN_FOLDER
from mnemon._sync.client import Client
from mnemon._sync.documents import Documents
from mnemon._values.access import Identity
from mnemon._values.documents import SCOPE_FIELDS, Document, Scope
from mnemon._values.filters import AllOf, F, Filter
from mnemon.shared.namespaces import is_unicode

_Item = TypeVar("_Item")

_BATCH_ITEMS_MAX = 64
_BATCH_CHARACTERS_MAX = 1 << 20
_DOC_ID_BYTES_MAX = 1024
_WAYS_OUT = "--id-prefix stores this one beside it, and --take-over replaces it"


def without_those_of_others(
    client: Client,
    items: Iterable[_Item],
    document_of: Callable[[_Item], Document],
    scope: Scope,
    refuse: Callable[[_Item, str], None],
) -> Iterator[_Item]:
    """The items that would not replace a document of another scope or folder; the others are refused with a reason."""
    caller = client.who_am_i()
    for batch in _batches(items, document_of):
        problems = _problems(client.documents, [document_of(item) for item in batch], scope, caller)
        for item in batch:
            if problem := problems.get(document_of(item).doc_id):
                refuse(item, problem)
            else:
                yield item


def stored_scope(scope: Scope, caller: Identity) -> Scope:
    """The scope with which the server stores documents of this one: it fills in the user and the origin of the key."""
    [user] = caller.users if len(caller.users) == 1 and caller.users != ("*",) else ("",)
    origin = caller.origins[-1] if caller.origins else ""
    return replace(scope, user=scope.user or user, origin=scope.origin or origin)


def is_exactly(scope: Scope) -> Filter:
    """Documents with exactly this scope: a field that it leaves empty is not set."""
    return AllOf(
        tuple(F(name) == value if (value := getattr(scope, name)) else ~F(name).exists() for name in SCOPE_FIELDS)
    )


def _batches(items: Iterable[_Item], document_of: Callable[[_Item], Document]) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(document_of(item).content)
        if len(batch) == _BATCH_ITEMS_MAX or characters >= _BATCH_CHARACTERS_MAX:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _problems(store: Documents, documents: Sequence[Document], scope: Scope, caller: Identity) -> dict[str, str]:
    """The reason for refusing each id that belongs to another scope or folder."""
    files: dict[tuple[Scope, str], dict[str, str]] = defaultdict(dict)
    for document in filter(_is_sendable, documents):
        own = stored_scope(scope if document.scope == Scope() else document.scope, caller)
        files[own, _folder_of(document)][document.doc_id] = _file_of(document)
    problems: dict[str, str] = {}
    for (own, folder), by_id in files.items():
        for other in store.list(where=F("doc_id").isin(by_id) & ~_is_of(own, folder)):
            if other.scope != own:
                problems[other.doc_id] = f"a document of {_shown(other.scope)} has this id; {_WAYS_OUT}"
            elif _file_of(other) != by_id[other.doc_id]:
                problems[other.doc_id] = f"a document from {_folder_of(other)} has this id; {_WAYS_OUT}"
    return problems


def _is_of(scope: Scope, folder: str) -> Filter:
    """Documents of exactly this scope, from this folder or an unknown one."""
    is_known = F(f"metadata.{FOLDER}").exists()
    return is_exactly(scope) & ((F(f"metadata.{FOLDER}") == folder) | ~is_known if folder else ~is_known)


def _is_sendable(document: Document) -> bool:
    """Whether the id and the folder are valid in a filter; if not, storing the document fails anyway."""
    texts = document.doc_id, _folder_of(document)
    return bool(document.doc_id) and all(
        "\0" not in text and is_unicode(text) and len(text.encode()) <= _DOC_ID_BYTES_MAX for text in texts
    )


def _folder_of(document: Document) -> str:
    return str(document.metadata.get(FOLDER, ""))


def _file_of(document: Document) -> str:
    """The file of a document, if it knows its folder. The same one may have been indexed from a folder above it."""
    if not (folder := _folder_of(document)):
        return ""
    inside = document.metadata.get(PATH_IN_FOLDER, document.metadata.get(FILE_NAME, ""))
    return f"{folder}/{inside}"


def _shown(scope: Scope) -> str:
    given = [f"{name} {value}" for name in SCOPE_FIELDS if (value := getattr(scope, name))]
    return ", ".join(given) or "no user, project or other scope"
