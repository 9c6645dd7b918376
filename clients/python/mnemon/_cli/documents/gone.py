"""Documents whose files have been removed from the folder since they were indexed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mnemon._cli.documents.others import is_exactly
from mnemon._cli.documents.sources import FOLDER, PATH_IN_FOLDER, SourceOptions, is_chosen
from mnemon._sync.documents import Documents
from mnemon._values.documents import Document, Scope
from mnemon._values.filters import F
from mnemon.shared.errors import DocumentNotFoundError, RevisionMismatchError


@dataclass
class Indexed:
    """The documents that this run has read, to tell which stored ones are gone."""

    ids: set[str] = field(default_factory=set)
    files: set[tuple[object, object]] = field(default_factory=set)
    unread: str = ""
    """The first input that could not be read as a document."""

    def add(self, document: Document) -> None:
        """Adds a document that was read."""
        self.ids.add(document.doc_id)
        self.files.add(_file_of(document))

    def gone(self, store: Documents, folder: str, options: SourceOptions, scope: Scope) -> Iterator[Document]:
        """The documents indexed from exactly this folder, with exactly this scope, whose files this run has not read.

        The globs of the run choose among them, too. Documents of other scopes belong to others: a user who shares them
        may have indexed a folder with the same path on another machine.
        """
        where = (F(f"metadata.{FOLDER}") == folder) & F(f"metadata.{PATH_IN_FOLDER}").exists()
        found = store.list(where=where & is_exactly(scope), view="ids")
        for doc_id in [each.doc_id for each in found if each.doc_id not in self.ids]:
            try:
                document = store.get(doc_id)
            except DocumentNotFoundError:
                continue
            file = _file_of(document)
            if file[0] == folder and file not in self.files and is_chosen(str(file[1]), options):
                yield document

    def has_files_of(self, folder: str) -> bool:
        """Whether the run has read any file of this folder."""
        return any(each == folder and inside for each, inside in self.files)


def remove_unchanged(store: Documents, document: Document) -> bool:
    """Removes a document, unless it has been changed or removed since."""
    try:
        store.delete(document.doc_id, expected_revision=document.revision)
    except (DocumentNotFoundError, RevisionMismatchError):
        return False
    return True


def _file_of(document: Document) -> tuple[object, object]:
    return document.metadata.get(FOLDER), document.metadata.get(PATH_IN_FOLDER)
