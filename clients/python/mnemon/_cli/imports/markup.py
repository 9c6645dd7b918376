"""The texts of HTML and Markdown files, without tags and front matter."""

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import PurePath
from typing import BinaryIO

from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Place
from mnemon._cli.imports.json_text import has_bad_bytes, text_of
from mnemon._cli.imports.metadata import metadata_of
from mnemon._messages.convert import invalid
from mnemon._values.documents import Document, MetadataValue

_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "title"})
_INLINE = frozenset(
    "a abbr b bdi bdo big button cite code data del dfn em font i img input ins kbd label mark q s samp small span"  # noqa: SIM905
    " strong sub sup time tt u var wbr".split()
)
_BREAKS = {"br": "\n", "li": "\n", "tr": "\n", "dt": "\n", "dd": "\n", "td": " ", "th": " "}
"""The space before elements other than paragraphs."""
_SPACES = re.compile(r"[ \t\r\n\f]+")
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")
_PAGE = re.compile(
    r"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class _Reader(HTMLParser):
    """Collects the text that a browser would show, and the title."""

    def __init__(self) -> None:
        super().__init__()
        self.title, self.parts = "", list[str]()
        self._unseen, self._pre = list[str](), 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begins an element."""
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag not in _INLINE:
            self.parts.append(_BREAKS.get(tag, "\n\n"))
        self._pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        """Ends an element."""
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        elif tag not in _INLINE and tag not in _BREAKS:
            self.parts.append("\n\n")
        self._pre = max(0, self._pre - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        """Collects a text."""
        if self._unseen == ["title"]:
            self.title += data
        elif not self._unseen:
            self.parts.append(data if self._pre > 0 else _SPACES.sub(" ", data))


def text_of_html(text: str) -> tuple[str, dict[str, MetadataValue]]:
    """The text of an HTML document, and its title as metadata."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    # Only preformatted lines begin with two spaces.
    parts = "".join(reader.parts).split("\n")
    lines = (line.rstrip() if line.startswith("  ") else line.strip(" ") for line in parts)
    title = _SPACES.sub(" ", reader.title).strip()
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip(), {"title": title} if title else {}


def text_of_markdown(text: str) -> tuple[str, dict[str, MetadataValue]]:
    """The text of a Markdown document, and its front matter as metadata.

    If the front matter has no fields, or pyyaml is not installed, it stays in the text.
    """
    found = _FRONT_MATTER.match(text)
    fields = _fields_of(found[1]) if found else []
    return (text[found.end() :].lstrip("\r\n"), metadata_of(fields)) if found and fields else (text, {})


def text_of_file(name: str, text: str) -> tuple[str, dict[str, MetadataValue]]:
    """The text of a file and its metadata, by its suffix."""
    read = _READERS.get(PurePath(name).suffix.lower())
    return read(text) if read else (text, {})


_READERS = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), text_of_html),
    **dict.fromkeys((".md", ".markdown", ".mdx"), text_of_markdown),
}


def html(file: BinaryIO, name: str) -> Iterator[Found]:
    """The document of a page of HTML."""
    return _document(file, name, text_of_html)


def markdown(file: BinaryIO, name: str) -> Iterator[Found]:
    """The document of a text in Markdown."""
    return _document(file, name, text_of_markdown)


def _document(
    file: BinaryIO, name: str, read: Callable[[str], tuple[str, dict[str, MetadataValue]]]
) -> Iterator[Found]:
    with text_of(file) as given:
        content = given.read()
    place = Place(1)
    if has_bad_bytes(content):
        yield Damaged(place, invalid("content", "is not UTF-8"), name)
        return
    text, metadata = read(content)
    if not text.strip():
        yield LeftOut(place, "without text")
    else:
        yield Item(place, Document(name, text, {"source": name, **metadata}))


def is_html(head: str) -> bool:
    """Whether a text begins as a page of HTML."""
    return _PAGE.match(head) is not None


def has_front_matter(head: str) -> bool:
    """Whether a text begins with metadata in YAML."""
    return _FRONT_MATTER.match(head) is not None


def _fields_of(text: str) -> list[tuple[object, object]]:
    try:
        from mnemon._cli.imports.front_matter import fields_of
    except ImportError:
        return []
    return fields_of(text)
