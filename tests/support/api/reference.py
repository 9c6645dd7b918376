"""The reference: a page for each proto, made from its comments, with calls that anyone can make."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.descriptor_pb2 import MethodOptions
from mnemon.v1 import access_pb2

from tests.support.api.examples import EXAMPLES, HTTP
from tests.support.api.schemas import PACKAGE, short
from tests.support.repository import ROOT
from tests.support.rpcs import SERVED_BY_OTHERS, modules

_ROLES = {number: name.removeprefix("ROLE_").lower() for name, number in access_pb2.Role.items()}
_PROTO = "mnemon/v1/"
INTRODUCTION = Template((Path(__file__).parent / "introduction.md.in").read_text("utf-8"))


class Reference:
    """The pages by name."""

    def __init__(self, comments: Mapping[str, str], service_config: Mapping[str, Any]) -> None:
        """From the comments by full name, and the service config."""
        self._comments = comments
        self._files = [module.DESCRIPTOR for module in modules()]
        self._homes = {
            each.full_name: _page(file)
            for file in self._files
            for each in (*file.message_types_by_name.values(), *file.enum_types_by_name.values())
        }
        self._calls = {
            f"{name['service']}.{name['method']}": (config["timeout"], "retryPolicy" in config)
            for config in service_config["methodConfig"]
            for name in config["name"]
        }

    def pages(self) -> dict[str, str]:
        """The text of each page."""
        return {"README.md": self._index(), **{_page(file): self._text(file) for file in self._files}}

    def _index(self) -> str:
        services = [(file, each) for file in self._files for each in file.services_by_name.values()]
        rows = (
            f"| [{service.name}]({_page(file)}) | {self._sentence(service)} | {len(service.methods)} |"
            for file, service in services
        )
        others = [f"[{_page(file)}]({_page(file)})" for file in self._files if not file.services_by_name]
        return "\n".join(
            (
                INTRODUCTION.substitute(http=HTTP),
                "| service | what it does | methods |",
                "| --- | --- | --- |",
                *rows,
                f"\nTypes that several services share: {', '.join(others)}.\n",
            )
        )

    def _sentence(self, service: ServiceDescriptor) -> str:
        return _cell(re.split(r"(?<=\.)\s", self._comments[service.full_name], maxsplit=1)[0])

    def _text(self, file: FileDescriptor) -> str:
        services = list(file.services_by_name.values())
        title = services[0].name if services else _page(file).removesuffix(".md").capitalize()
        parts = [f"# {title}", f"From [`{file.name}`](../{file.name}). [All services](README.md)."]
        for service in services:
            parts += [self._comments[service.full_name], *_examples(service.full_name), "## Methods"]
            parts += [part for method in service.methods for part in self._of_method(method)]
        messages = list(file.message_types_by_name.values())
        parts += ["## Messages"] if messages else []
        parts += [part for message in messages for part in self._of_message(message)]
        enums = list(file.enum_types_by_name.values())
        parts += ["## Enums"] if enums else []
        parts += [part for enum in enums for part in self._of_enum(enum)]
        return "\n\n".join(parts) + "\n"

    def _of_method(self, method: MethodDescriptor) -> Iterator[str]:
        request, answer = self._link(method.input_type), self._link(method.output_type)
        sent = f"a stream of {request}" if method.client_streaming else request
        returned = f"a stream of {answer}" if method.server_streaming else answer
        yield f"### {method.name}"
        yield self._comments[method.full_name]
        yield "\n".join((f"- Takes {sent}, returns {returned}.", *self._told(method)))

    def _told(self, method: MethodDescriptor) -> Iterator[str]:
        service: Any = method.containing_service
        if service.name in SERVED_BY_OTHERS:
            return
        options: Any = method.GetOptions()
        role = _ROLES[options.Extensions[access_pb2.required_role]]
        others = " An operator, too." if options.Extensions[access_pb2.open_to_operators] and role != "operator" else ""
        yield f"- Role: {role}.{others}"
        if options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
            yield "- Changes nothing."
        if method.full_name in self._calls:
            timeout, repeats = self._calls[method.full_name]
            yield f"- By the service config: {timeout.removesuffix('s')} s, {'retried' if repeats else 'not retried'}."
        if method.client_streaming:
            yield "- Over gRPC alone."

    def _of_message(self, message: Descriptor) -> Iterator[str]:
        yield f"### {short(message.full_name)}"
        yield self._comments[message.full_name]
        for oneof in message.oneofs:
            if len(oneof.fields) > 1:
                names = ", ".join(f"`{field.name}`" for field in oneof.fields)
                yield f"At most one of {names}. {self._comments.get(oneof.full_name, '')}".rstrip()
        if message.fields:
            rows = (
                f"| `{field.name}` | {self._type(field)} | {_cell(self._comments.get(field.full_name, ''))} |"
                for field in message.fields
            )
            yield "\n".join(("| field | type | meaning |", "| --- | --- | --- |", *rows))

    def _of_enum(self, enum: EnumDescriptor) -> Iterator[str]:
        yield f"### {short(enum.full_name)}"
        yield self._comments[enum.full_name]
        values = (
            f"| `{value.name}` | {value.number} | {_cell(self._comments[f'{enum.full_name}.{value.name}'])} |"
            for value in enum.values
        )
        yield "\n".join(("| value | number | meaning |", "| --- | --- | --- |", *values))

    def _type(self, field: FieldDescriptor) -> str:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            return f"map of string to {self._kind(kind.fields_by_name['value'])}"
        prefix = "list of " if field.is_repeated else "optional " if _is_optional(field) else ""
        return prefix + self._kind(field)

    def _kind(self, field: FieldDescriptor) -> str:
        kind = field.message_type or field.enum_type
        return self._link(kind) if kind is not None else _SCALARS[field.type]

    def _link(self, kind: Descriptor | EnumDescriptor) -> str:
        if not kind.full_name.startswith(PACKAGE):
            return short(kind.full_name).removeprefix("google.protobuf.")
        name = short(kind.full_name)
        return f"[{name}]({self._homes[kind.full_name]}#{name.lower()})"


_SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_STRING: "string",
}


def pages(comments: Mapping[str, str]) -> dict[str, str]:
    """The reference as files by name."""
    config = json.loads((ROOT / "protos/service_config.json").read_text(encoding="utf-8"))
    return Reference(comments, config).pages()


def _examples(service: str) -> Sequence[str]:
    found = [each for each in EXAMPLES if each.full_name.startswith(f"{service}.")]
    if not found:
        return ()
    over_http, over_grpc = "\n".join(each.curl() for each in found), "\n".join(each.buf_curl() for each in found)
    return ("JSON over HTTP:", f"```sh\n{over_http}\n```", "gRPC:", f"```sh\n{over_grpc}\n```")


def _page(file: FileDescriptor) -> str:
    return file.name.removeprefix(_PROTO).replace(".proto", ".md")


def _is_optional(field: FieldDescriptor) -> bool:
    oneof = field.containing_oneof
    return oneof is not None and len(oneof.fields) == 1


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n\n", "<br>")
