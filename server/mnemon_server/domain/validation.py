"""Validation of documents, searches and scopes. Every violation names its field."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from mnemon.shared.namespaces import is_blank

from mnemon_server.domain.clock import utc
from mnemon_server.domain.documents import CONTENT_BYTES_MAX, DOC_ID_BYTES_MAX, Document
from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.origins import origin_violations
from mnemon_server.domain.records import (
    METADATA_BYTES_MAX,
    METADATA_KEYS_MAX,
    MetadataValue,
    Scope,
    metadata_bytes,
    metadata_key_problem,
    metadata_value_problem,
)

REQUEST_ID_BYTES_MAX = 128
SCOPE_BYTES_MAX = 256
_KINDS: Mapping[type, str] = {str: "a text", int: "a whole number", Mapping: "a mapping of keys to values"}
BLANK_PROBLEM = "must not be blank: it needs a character that can be seen"

_CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f]")
_UNFIT_FOR_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def doc_id_violations(doc_id: str, field: str = "doc_id") -> Iterable[FieldViolation]:
    """The violations in a document's id."""
    if not doc_id or len(doc_id.encode("utf-8", "surrogatepass")) > DOC_ID_BYTES_MAX:
        yield FieldViolation(field, f"must be 1 to {DOC_ID_BYTES_MAX} bytes of UTF-8")
    elif is_blank(doc_id):
        yield FieldViolation(field, BLANK_PROBLEM)
    elif _CONTROL_CHARACTER.search(doc_id):
        yield FieldViolation(field, "must not contain control characters")
    elif has_unpaired_surrogate(doc_id):
        yield FieldViolation(field, "must be valid Unicode")


def type_violations(arguments: Mapping[str, object], kind: type) -> Iterable[FieldViolation]:
    """The violations in a program's arguments, by name, of which each must be a `kind`."""
    for name, value in arguments.items():
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield FieldViolation(name, f"must be {_KINDS[kind]}, not {type(value).__name__}")


def document_violations(document: Document, field: str = "document") -> Iterable[FieldViolation]:
    """The violations in a document that is to be stored."""
    yield from doc_id_violations(document.doc_id, f"{field}.doc_id")
    yield from content_violations(document.content, f"{field}.content")
    yield from metadata_violations(document.metadata, f"{field}.metadata")
    yield from scope_violations(document.scope, f"{field}.scope")


def metadata_violations(metadata: Mapping[Any, Any], field: str) -> Iterable[FieldViolation]:
    """The violations in metadata."""
    if not metadata:
        return
    if len(metadata) > METADATA_KEYS_MAX:
        yield FieldViolation(field, f"must have at most {METADATA_KEYS_MAX} keys")
    if metadata_bytes(metadata) > METADATA_BYTES_MAX:
        yield FieldViolation(field, f"all texts together must be at most {METADATA_BYTES_MAX:,} bytes of UTF-8")
    for key, value in metadata.items():
        if problem := metadata_key_problem(key):
            yield FieldViolation(field, f"key {str(key)[:80]!r}: {problem}")
        elif problem := metadata_value_problem(value):
            yield FieldViolation(f"{field}.{key}", problem)


def scope_violations(scope: Scope, field: str = "scope") -> Iterable[FieldViolation]:
    """The violations in a scope."""
    for name, text in zip(SCOPE_FIELDS, scope_values(scope), strict=True):
        if text and not is_id(text):
            yield from id_violations(text, f"{field}.{name}")
    yield from origin_violations(scope, field)


def is_id(text: str, bytes_max: int = SCOPE_BYTES_MAX) -> bool:
    """Whether `id_violations` finds nothing."""
    return is_text(text, bytes_max) and not is_blank(text)


def id_violations(text: str, field: str, bytes_max: int = SCOPE_BYTES_MAX) -> Iterable[FieldViolation]:
    """The violations in an identifier, such as a part of a scope, an event's id or its type; it may be empty."""
    if is_blank(text):
        yield FieldViolation(field, BLANK_PROBLEM)
    else:
        yield from text_violations(text, field, bytes_max)


def is_text(text: str, bytes_max: int) -> bool:
    """Whether `text_violations` finds nothing. Asked first, since nearly all texts are valid, and there are many."""
    if text.isascii():
        return len(text) <= bytes_max and "\0" not in text
    try:
        return len(text.encode()) <= bytes_max and "\0" not in text
    except UnicodeEncodeError:
        return False


def text_violations(text: str, field: str, bytes_max: int) -> Iterable[FieldViolation]:
    """The violations in a short text; empty exactly where `is_text`."""
    if len(text.encode("utf-8", "surrogatepass")) > bytes_max:
        yield FieldViolation(field, f"must be at most {bytes_max} bytes of UTF-8")
    elif "\0" in text or has_unpaired_surrogate(text):
        yield FieldViolation(field, "must be valid Unicode without U+0000")


def name_violations(name: str, field: str) -> Iterable[FieldViolation]:
    """The violations in a name that an operator chose; lists print it on one line."""
    if not is_name(name):
        yield FieldViolation(
            field, "must not contain line breaks, control characters or characters that turn the direction of text"
        )


def is_name(name: str) -> bool:
    """Whether `name_violations` finds nothing."""
    return not _UNFIT_FOR_NAME.search(name)


def request_id_violations(request_id: str) -> Iterable[FieldViolation]:
    """The violations in a request id."""
    if not is_id(request_id, REQUEST_ID_BYTES_MAX):
        yield from id_violations(request_id, "request_id", REQUEST_ID_BYTES_MAX)


def revision_violations(revision: int | None, field: str = "expected_revision") -> Iterable[FieldViolation]:
    """The violations in an expected revision."""
    if revision is not None and revision < 0:
        yield FieldViolation(field, "must be 0 (does not exist) or a revision that was read")


def share_violations(value: float | None, field: str) -> Iterable[FieldViolation]:
    """Violations in a number that must be from 0 to 1, as a confidence or a score, if it is given."""
    if value is not None and not 0.0 <= value <= 1.0:
        yield FieldViolation(field, "must be between 0 and 1")


def refuse(violations: Iterable[FieldViolation]) -> None:
    """Raises InvalidArgumentError if there is at least one violation."""
    if found := list(violations):
        raise InvalidArgumentError(found)


def normalised(document: Document) -> Document:
    """The document with its metadata in stored form: lists as tuples, times aware and in UTC."""
    return replace(document, metadata=normalised_metadata(document.metadata))


def normalised_metadata(metadata: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Metadata in stored form: lists as tuples, times aware and in UTC."""
    return {key: _normalised(value) for key, value in metadata.items()}


def content_violations(content: str, field: str) -> Iterable[FieldViolation]:
    """The violations in a content text."""
    # To look for a letter in megabytes of white space takes milliseconds.
    if len(content) > CONTENT_BYTES_MAX:
        yield _too_long(field)
    elif not content.strip():
        yield FieldViolation(field, "must not be blank")
    elif "\0" in content or has_unpaired_surrogate(content):
        yield FieldViolation(field, "must be valid Unicode without U+0000")
    elif len(content.encode()) > CONTENT_BYTES_MAX:
        yield _too_long(field)


def _too_long(field: str) -> FieldViolation:
    return FieldViolation(field, f"must be at most {CONTENT_BYTES_MAX:,} bytes of UTF-8; split it into documents")


def has_unpaired_surrogate(text: str) -> bool:
    """Whether the text contains an unpaired surrogate, which UTF-8 cannot encode.

    A regular expression that looks for one would block all threads for 6 ms per megabyte.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _normalised(value: Any) -> MetadataValue:
    match value:
        case list():
            return tuple(value)
        case datetime():
            return utc(value)
        case _:
            return value  # type: ignore[no-any-return]
