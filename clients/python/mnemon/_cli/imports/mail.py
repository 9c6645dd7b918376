"""Converts the mails of an mbox file to documents."""

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

_BEGIN = b"From "
_SEPARATOR = re.compile(
    rb"From \S.*\s(Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+(\d{1,2}\s+)?"
    rb"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s"
)
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9_-]*:(\s|\Z)")
_HEADERS = ("subject", "from", "to")


def mbox(file: BinaryIO, name: str) -> Iterator[Found]:
    """The mails of a file, one in memory at a time; attachments are skipped."""
    for place, content in _mails(file):
        try:
            yield from _mail(place, content, name)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            # The parser of headers raises any of these for damaged ones.
            yield Damaged(place, invalid("mail", f"cannot be read: {error}"))


def begins_mail(line: bytes, following: bytes) -> bool:
    """Whether a line separates mails: it names the sender and the time, or a header follows. Prose has neither."""
    return line.startswith(_BEGIN) and bool(_SEPARATOR.match(line) or _HEADER.match(following))


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
    mail = email.message_from_bytes(content, _class=EmailMessage, policy=email.policy.default)
    subject = str(mail.get("subject", "")).strip()
    text = "\n\n".join(part for part in (subject, _body(mail).strip()) if part)
    if not text:
        yield LeftOut(place, "without text")
        return
    mail_id = str(mail.get("message-id", "")).strip(" <>") or blake2b(content, digest_size=16).hexdigest()
    metadata: dict[str, MetadataValue] = {each: str(mail[each]) for each in _HEADERS if mail[each]}
    if sent := getattr(mail["date"], "datetime", None):
        # A time is stored in UTC; the day is that of the sender's clock.
        metadata["date"] = f"{sent:%Y-%m-%d}"
        metadata["time"] = sent if sent.tzinfo else sent.astimezone()
    yield Item(place, Document(f"mail/{mail_id}", text, {"source": name, **metadata}))
    if attached := sum(1 for _ in mail.iter_attachments()):
        yield LeftOut(place, "attachments", attached)


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
