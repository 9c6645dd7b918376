"""Reads the front matter of Markdown; a module of its own, because the command works without pyyaml."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from mnemon._cli.imports.metadata import exact
from mnemon._cli.yaml_text import Loader, parsed

_TAG = "tag:yaml.org,2002:"
_KEPT = (f"{_TAG}null", f"{_TAG}timestamp")
_PLAIN = "!plain"
_TITLE = "title"
_COMMENT = re.compile(r"^#.*\n?", re.MULTILINE)
_FIELD = re.compile(r"""^(["']?)(?P<name>\w[\w .:/-]*?)\1[ \t]*:(?=[ \t\r\n]|\Z)""", re.MULTILINE)
_BEGIN = re.compile(r"^(?![\s\]}-]|\Z)", re.MULTILINE)
"""The start of a line that does not go on with the field above."""


class _Loader(Loader):
    """Reads scalars as the core schema of YAML 1.2 does, and times; the title is text.

    YAML 1.1 reads `no` as false, `12:30` as 750 and `01234` as 668.
    """

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """The tag of a node."""
        tag = super().resolve(kind, value, implicit)
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] and tag not in _KEPT else tag

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node. A few lines of aliases can stand for gigabytes."""
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it has aliases")
        return super().compose_node(parent, index)

    def construct_document(self, node: Any) -> Any:
        """The value of the front matter."""
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == _TITLE and not isinstance(value, yaml.ScalarNode):
                raise ValueError("the title must be text")
            if key.value == _TITLE and value.value:
                value.tag = f"{_TAG}str"
        return super().construct_document(node)

    def construct_time(self, node: Any) -> Any:
        """The time of a node, or its text if the date is invalid."""
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError:
            return node.value


_Loader.add_constructor(_PLAIN, lambda loader, node: exact(node.value))
_Loader.add_constructor(f"{_TAG}timestamp", _Loader.construct_time)


def fields_of(text: str) -> list[tuple[object, object]]:
    """The fields of front matter, possibly empty. If the whole is not valid YAML, each field is parsed alone."""
    try:
        found = parsed(text.encode(), _Loader)
    except (ValueError, RecursionError):
        return _fields_one_by_one(text)
    return list(found.items()) if isinstance(found, Mapping) else []


def _fields_one_by_one(text: str) -> list[tuple[object, object]]:
    """The fields of invalid YAML, parsed one by one; a field that cannot be parsed is kept as text."""
    text = _COMMENT.sub("", text)
    begins = list(_FIELD.finditer(text))
    if not begins or text[: begins[0].start()].strip() or len(_BEGIN.findall(text)) != len(begins):
        return []
    ends = [each.start() for each in begins[1:]] + [len(text)]
    return [_field(begin, text[begin.start() : end]) for begin, end in zip(begins, ends, strict=True)]


def _field(begin: re.Match[str], text: str) -> tuple[object, object]:
    try:
        [(name, value)] = parsed(text.encode(), _Loader).items()
    except (ValueError, RecursionError):
        return begin["name"], begin.string[begin.end() : begin.start() + len(text)].strip()
    return name, value
