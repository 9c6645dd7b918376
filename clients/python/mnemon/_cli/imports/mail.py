"""Converts mails to documents: the one mail of a file, or all mails of an mbox file."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage
from hashlib import blake2b
from itertools import chain, pairwise
from typing import BinaryIO

from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Place
from mnemon._cli.imports.markup import text_of_html
from mnemon._messages.convert import invalid
from mnemon._values.documents import Document, MetadataValue

SUFFIX = ".eml"
"""Of files with one mail."""
_BEGIN = b"From "
_SEPARATOR = re.compile(
    rb"From \S.*\s(Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+(\d{1,2}\s+)?"
    rb"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s"
)
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9_-]*:(\s|\Z)")
_HEADERS = ("subject", "from", "to")
_ALONE = frozenset(("date", "subject", "message-id"))
"""Headers: a mail has at least one of them besides its sender."""
_DAMAGED = (ValueError, LookupError, AttributeError, TypeError)
"""The parser of headers raises any of these for damaged ones."""


def mbox(file: BinaryIO, name: str) -> Iterator[Found]:
    """The mails of a file, one in memory at a time; attachments are skipped."""
    for place, content in _mails(file):
        try:
            yield from _mail(place, content, name)
        except _DAMAGED as error:
            yield Damaged(place, invalid("mail", f"cannot be read: {error}"))


def begins_mail(line: bytes, following: bytes) -> bool:
    """Whether a line separates mails: it names the sender and the time, or a header follows. Prose has neither."""
    return line.startswith(_BEGIN) and bool(_SEPARATOR.match(line) or _HEADER.match(following))


def is_mail(head: str) -> bool:
    """Whether a text begins with the headers of a mail, as a file with one mail does."""
    if not _HEADER.match(head.encode("utf-8", "surrogateescape")):
        return False
    names = {name.lower() for name in email.message_from_string(head)}
    return "from" in names and not names.isdisjoint(_ALONE)


def text_of_mail(content: bytes) -> tuple[str, dict[str, MetadataValue]]:
    """The subject and the text of a mail, and its headers as metadata. Raises ValueError if it is damaged."""
    try:
        mail = _parsed(content)
        return _text(mail), _metadata(mail)
    except _DAMAGED as error:
        raise ValueError(f"the mail cannot be read: {error}") from error


def _mails(file: BinaryIO) -> Iterator[tuple[Place, bytes]]:
    start, lines, is_blank = 1, list[bytes](), True
    for number, (line, following) in enumerate(pairwise(chain(file, [b""])), start=1):
        if is_blank and begins_mail(line, following):
            if lines:
                yield Place(start), b"".join(lines)
            start, lines = number, []
        else:
            # A line of the text that begins with "From " was quoted.
            is_quoted = line.startswith(b">") and line.lstrip(b">").startswith(_BEGIN)
            lines.append(line[1:] if is_quoted else line)
        is_blank = not line.strip()
    if lines:
        yield Place(start), b"".join(lines)


def _mail(place: Place, content: bytes, name: str) -> Iterator[Found]:
    mail = _parsed(content)
    if not (text := _text(mail)):
        yield LeftOut(place, "without text")
        return
    mail_id = str(mail.get("message-id", "")).strip(" <>") or blake2b(content, digest_size=16).hexdigest()
    yield Item(place, Document(f"mail/{mail_id}", text, {"source": name, **_metadata(mail)}))
    if attached := sum(1 for _ in mail.iter_attachments()):
        yield LeftOut(place, "attachments", attached)


def _parsed(content: bytes) -> EmailMessage:
    return email.message_from_bytes(content, _class=EmailMessage, policy=email.policy.default)


def _text(mail: EmailMessage) -> str:
    subject = str(mail.get("subject", "")).strip()
    return "\n\n".join(part for part in (subject, _body(mail).strip()) if part)


def _metadata(mail: EmailMessage) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {each: str(mail[each]) for each in _HEADERS if mail[each]}
    if sent := getattr(mail["date"], "datetime", None):
        # A time is stored in UTC; the day is that of the sender's clock.
        metadata["date"] = f"{sent:%Y-%m-%d}"
        metadata["time"] = sent if sent.tzinfo else sent.astimezone()
    return metadata


def _body(mail: EmailMessage) -> str:
    """The text of a mail; HTML without its tags."""
    part = mail.get_body(("plain", "html"))
    if part is None:
        return ""
    try:
        text = str(part.get_content())
    except LookupError:
        # An unknown character set.
        payload = part.get_payload(decode=True)
        text = payload.decode(errors="replace") if isinstance(payload, bytes) else ""
    return text_of_html(text)[0] if part.get_content_type() == "text/html" else text
