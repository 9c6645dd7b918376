"""Reads documents from files, folders, JSON lines and standard input."""

import json
import os
import posixpath
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

from mnemon._cli.documents.ignored import IgnoredFiles
from mnemon._cli.encodings import decoded, is_wide, lines_of
from mnemon._cli.imports import mail
from mnemon._cli.imports.markup import text_of_file
from mnemon._cli.options import STDIN, TEXT_BYTES_MAX, read_bytes
from mnemon._cli.progress import count_lines
from mnemon._json import read_json
from mnemon._values.documents import SCOPE_FIELDS, Document, MetadataValue, Scope, SearchResult

STDIN_SOURCE = "stdin"
NOT_TEXT = "not UTF-8 text"
FOLDER, PATH_IN_FOLDER, FILE_NAME = "source_folder", "path_in_folder", "file_name"
"""The keys of metadata that name a document's folder, and its path there unless the file was given by itself."""

_OBJECTS = ("metadata", "scope")
_GIVEN = ("doc_id", "id", "content", "text", "metadata", "scope")
_PRINTED = frozenset(each.name for kind in (Document, SearchResult) for each in fields(kind))
"""The fields that lists and searches print, so that their lines can be indexed again."""
_JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class Skipped:
    """An input without a document, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An input that should have been a document, and what is wrong with it."""

    path: str
    problem: str


Source: TypeAlias = Document | Skipped | Unreadable


@dataclass(frozen=True, slots=True)
class Input:
    """A file or standard input, its document id, and the metadata that names its folder."""

    path: str
    doc_id: str
    folder: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceOptions:
    """How inputs become documents."""

    globs: tuple[str, ...] = ()
    hidden: bool = False
    gitignore: bool = True
    json_lines: bool = False
    id_prefix: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    stdin_id: str = ""
    """The id of standard input; if it is empty, it follows from the content, so that two texts are two documents."""


def find_inputs(paths: Sequence[str], options: SourceOptions) -> list[Input | Skipped | Unreadable]:
    """The inputs of the paths. Folders are walked in the order of names; symbolic links to folders are not followed.

    The id of a file is its path inside the given folder, or its name. With several paths, each id begins with the path,
    because two folders often hold files with the same name.
    """
    found: list[Input | Skipped | Unreadable] = []
    for path in paths:
        if path == STDIN:
            found.append(Input(STDIN, options.stdin_id))
        elif Path(path).is_dir():
            found += _walk(Path(path), "" if len(paths) == 1 else path, options)
        else:
            found.append(Input(path, file_id(path, paths), {FOLDER: folder_name(Path(path).parent)}))
    return found


def file_id(path: str, paths: Sequence[str]) -> str:
    """The id of a file that is given by itself: its name, or its path if there are other paths."""
    return Path(path).name if len(paths) == 1 else posixpath.normpath(path)


def _walk(root: Path, base: str, options: SourceOptions) -> Iterator[Input | Skipped | Unreadable]:
    failures: list[OSError] = []
    ignored = IgnoredFiles(root) if options.gitignore else ()
    root_name = folder_name(root)
    for folder, folders, files in os.walk(root, onerror=failures.append):
        folders.sort()
        left_out: dict[str, str] = {}
        for name in folders + files:
            if name.startswith(".") and not options.hidden:
                left_out[name] = "hidden"
            elif Path(folder, name).relative_to(root) in ignored:
                left_out[name] = "in .gitignore"
            elif Path(folder, name).is_symlink() and Path(folder, name).is_dir():
                left_out[name] = "a symbolic link to a folder"
        yield from (Skipped(str(Path(folder, name)), reason) for name, reason in left_out.items())
        folders[:] = [name for name in folders if name not in left_out]
        for name in sorted(set(files) - left_out.keys()):
            path = Path(folder, name)
            inside = path.relative_to(root).as_posix()
            if not is_chosen(inside, options):
                continue
            doc_id = posixpath.normpath(posixpath.join(base, inside))
            place = {FOLDER: root_name, PATH_IN_FOLDER: inside}
            # A pipe or a device would never end.
            yield Input(str(path), doc_id, place) if path.is_file() else Skipped(str(path), "not a file")
    yield from (Unreadable(str(error.filename), error.strerror or type(error).__name__) for error in failures)


def is_chosen(inside: str, options: SourceOptions) -> bool:
    """Whether a file matches the globs, by its path inside the folder."""
    name = posixpath.basename(inside)
    return not options.globs or any(fnmatch(inside, glob) or fnmatch(name, glob) for glob in options.globs)


def folder_name(root: Path) -> str:
    """The folder's name in metadata: the same however the folder is given."""
    return root.resolve().as_posix()


def read_inputs(inputs: Iterable[Input | Skipped | Unreadable], options: SourceOptions) -> Iterator[Source]:
    """The documents of the inputs, one file open at a time; a repeated file is skipped."""
    seen: set[str] = set()
    for given in inputs:
        if not isinstance(given, Input):
            yield given
        elif _is_json_lines(given, options):
            yield from _read_json_lines(given, options)
        else:
            yield _once(_read_text(given, options), seen, given.path)


def count_documents(inputs: Iterable[Input | Skipped | Unreadable], options: SourceOptions) -> int:
    """The number of documents; 0 if it is unknown for one of the inputs."""
    counts = [
        count_lines(each.path) if isinstance(each, Input) and _is_json_lines(each, options) else 1 for each in inputs
    ]
    return sum(counts) if all(counts) else 0


def _is_json_lines(given: Input, options: SourceOptions) -> bool:
    return options.json_lines or given.path.endswith(_JSON_LINES_SUFFIXES)


def _once(source: Source, seen: set[str], path: str) -> Source:
    if not isinstance(source, Document):
        return source
    if source.doc_id in seen:
        return Skipped(path, "given twice")
    seen.add(source.doc_id)
    return source


def _read_text(given: Input, options: SourceOptions) -> Source:
    try:
        data = read_bytes(given.path)
    except OSError as error:
        return Unreadable(given.path, error.strerror or type(error).__name__)
    if b"\0" in data and not is_wide(data):
        return Skipped(given.path, NOT_TEXT)
    if len(data) > TEXT_BYTES_MAX:
        return Unreadable(given.path, f"longer than {TEXT_BYTES_MAX:,} bytes; split it into several documents")
    try:
        is_mail = given.path.lower().endswith(mail.SUFFIX)
        text, inner = mail.text_of_mail(data) if is_mail else text_of_file(given.path, decoded(data))
    except UnicodeDecodeError:
        return Skipped(given.path, NOT_TEXT)
    except ValueError as error:
        return Unreadable(given.path, str(error))
    if not text.strip():
        return Skipped(given.path, "blank")
    doc_id = given.doc_id or f"stdin-{blake2b(data, digest_size=8).hexdigest()}"
    return Document(options.id_prefix + doc_id, text, {**inner, **_file_metadata(given), **options.metadata})


def _file_metadata(given: Input) -> dict[str, MetadataValue]:
    if given.path == STDIN:
        return {"source": STDIN_SOURCE}
    path = Path(given.path)
    return {"source": path.as_posix(), FILE_NAME: path.name, "suffix": path.suffix, **given.folder}


def _read_json_lines(given: Input, options: SourceOptions) -> Iterator[Source]:
    try:
        with sys.stdin.buffer if given.path == STDIN else Path(given.path).open("rb") as file:
            for number, line in enumerate(lines_of(file), start=1):
                if line.strip():
                    yield _read_json_line(f"{given.path}:{number}", line, options)
    except OSError as error:
        yield Unreadable(given.path, error.strerror or type(error).__name__)


def _read_json_line(place: str, line: bytes, options: SourceOptions) -> Source:
    try:
        found = without_nulls(read_json(line))
    except ValueError as error:
        return Unreadable(place, f"not JSON: {error}")
    problem = _json_problem(found)
    if problem:
        return Unreadable(place, problem)
    return Document(
        options.id_prefix + found.get("doc_id", found.get("id")),
        found.get("content", found.get("text")),
        {**(found.get("metadata") or {}), **options.metadata},
        _json_scope(found.get("scope") or {}),
    )


def without_nulls(found: Any) -> Any:
    """A line without nulls, also in its metadata and its scope: exports of tables write them for empty cells."""
    if not isinstance(found, dict):
        return found
    given = {name: value for name, value in found.items() if value is not None}
    return {name: without_nulls(value) if name in _OBJECTS else value for name, value in given.items()}


def _json_problem(found: Any) -> str | None:
    if not isinstance(found, dict):
        return 'a line must be an object, such as {"doc_id": "note-1", "content": "…"}'
    if unknown := sorted(found.keys() - {*_GIVEN} - _PRINTED):
        name = json.dumps(unknown[0])
        return f'{name} is not a field; the fields are {", ".join(_GIVEN)}; other values belong in "metadata"'
    if not isinstance(found.get("doc_id", found.get("id")), str):
        return '"doc_id" (or "id") must be text'
    if not isinstance(found.get("content", found.get("text")), str):
        return '"content" (or "text") must be text'
    if not isinstance(found.get("metadata") or {}, dict):
        return '"metadata" must be an object'
    if not isinstance(found.get("scope") or {}, dict):
        return '"scope" must be an object'
    return None


def _json_scope(fields: Mapping[str, Any]) -> Scope:
    return Scope(**{name: str(fields.get(name) or "") for name in SCOPE_FIELDS})
