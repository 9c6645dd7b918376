"""The comments of the protos, which the stubs do not have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

_MESSAGES, _ENUMS, _SERVICES, _FIELDS, _ONEOFS, _METHODS, _VALUES = (4,), (5,), (6,), 2, 8, 2, 2
"""Where descriptor.proto has them in a file, a message, a service and an enum."""


def comments_in(image: Path) -> Mapping[str, str]:
    """The comment of everything that has one, by its full name, as Markdown: a paragraph is one line.

    Args:
        image: the output of `buf build --as-file-descriptor-set`.
    """
    files = FileDescriptorSet.FromString(image.read_bytes()).file
    return {name: text for file in files for name, text in _of_file(file) if text}


def _of_file(file: Any) -> Iterator[tuple[str, str]]:
    texts = {tuple(each.path): _paragraphs(each.leading_comments) for each in file.source_code_info.location}
    for path, name in _named(file):
        yield name, texts.get(path, "")


def _named(file: Any) -> Iterator[tuple[tuple[int, ...], str]]:
    prefix = f"{file.package}."
    for index, service in enumerate(file.service):
        yield (*_SERVICES, index), prefix + service.name
        for at, method in enumerate(service.method):
            yield (*_SERVICES, index, _METHODS, at), f"{prefix}{service.name}.{method.name}"
    for index, enum in enumerate(file.enum_type):
        yield (*_ENUMS, index), prefix + enum.name
        for at, value in enumerate(enum.value):
            yield (*_ENUMS, index, _VALUES, at), f"{prefix}{enum.name}.{value.name}"
    for index, message in enumerate(file.message_type):
        yield (*_MESSAGES, index), prefix + message.name
        for kind, parts in ((_FIELDS, message.field), (_ONEOFS, message.oneof_decl)):
            for at, part in enumerate(parts):
                yield (*_MESSAGES, index, kind, at), f"{prefix}{message.name}.{part.name}"


def _paragraphs(comment: str) -> str:
    lines = (line.strip() for line in comment.strip().splitlines())
    return "\n\n".join(" ".join(part.split("\n")) for part in "\n".join(lines).split("\n\n") if part)
