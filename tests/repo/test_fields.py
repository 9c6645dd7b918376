"""A text field of a proto message is supported everywhere, so no list of fields was forgotten when it was added."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from mnemon import EpisodicEvent, Memory, SemanticMemory
from mnemon._cli.json_lines import MEMORY_LINES, read_records
from mnemon._cli.memories import list_memories, remember
from mnemon._messages.filters import keywords_to_pb
from mnemon._messages.records import event_to_pb, memory_to_pb, statement_to_pb, update_memory
from mnemon._messages.translation import read
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.memories import TAGS, MemoryFilters, MemoryTagChanges, MemoryTags
from mnemon.v1 import episodic_pb2, memory_pb2, semantic_pb2
from mnemon_server.domain.confidence import DEFAULT_DECAY, ConfidenceModel
from mnemon_server.domain.memories import FILTER_FIELDS
from mnemon_server.services.memories.checks import record_filter
from mnemon_server.services.memories.stored_form import to_document, to_memory
from mnemon_server.services.writing.field_masks import updated
from mnemon_server.transport.convert.memories import fill_memory, read_create, read_list, read_update

from tests.support.repository import ROOT

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CONFIDENCE = ConfidenceModel(DEFAULT_DECAY)
SET_BY_THE_SERVER = {"superseded_by"}
ID = "6f1c2f5e-0f5b-4f6e-9a59-0d6f3a1f4c11"


def own_texts(descriptor: Descriptor) -> set[str]:
    """The singular texts of a message."""
    return {
        field.name for field in descriptor.fields if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated
    }


TAG_NAMES = (own_texts(memory_pb2.Memory.DESCRIPTOR) | {*SCOPE_FIELDS}) - {"memory_id", "content"}


def filled(message: Any) -> Any:
    """The message with a different text in each of its text fields and in those of its scope."""
    for target in (message, message.scope):
        for name in own_texts(target.DESCRIPTOR):
            setattr(target, name, ID if name == "memory_id" else f"the {name}")
    return message


def stored(memory: memory_pb2.Memory) -> memory_pb2.Memory:
    """A memory as the server returns it after reading and storing it."""
    read = read_create(memory_pb2.CreateMemoryRequest(memory=memory)).memory
    answer = memory_pb2.Memory()
    fill_memory(answer, to_memory(to_document(read), CONFIDENCE, NOW))
    return answer


def texts_of(message: Message) -> dict[str, str]:
    return {name: getattr(message, name) for name in own_texts(message.DESCRIPTOR)}


def test_a_scope_has_the_same_fields_everywhere() -> None:
    assert {*SCOPE_FIELDS} == own_texts(memory_pb2.Memory.DESCRIPTOR.fields_by_name["scope"].message_type)


@pytest.mark.parametrize(
    ("message", "kind", "write"),
    [
        (memory_pb2.Memory(), Memory, memory_to_pb),
        (semantic_pb2.SemanticMemory(), SemanticMemory, statement_to_pb),
        (episodic_pb2.EpisodicEvent(), EpisodicEvent, event_to_pb),
    ],
    ids=["memory", "statement", "event"],
)
def test_the_client_reads_and_writes_every_text(message: Any, kind: type[Any], write: Callable[[Any], Any]) -> None:
    value = read(kind, filled(message))
    expected = texts_of(message)
    assert {name: getattr(value, name) for name in expected} == expected
    assert {name: getattr(value, name) for name in SCOPE_FIELDS} == texts_of(message.scope)
    written = write(value)
    given = {name: text for name, text in expected.items() if name not in SET_BY_THE_SERVER}
    assert {name: getattr(written, name) for name in given} == given
    assert written.scope == message.scope


def test_the_client_accepts_every_text_of_a_memory_as_an_argument() -> None:
    assert TAGS.keys() == TAG_NAMES
    assert MemoryTags.__annotations__.keys() - {"is_global"} == TAG_NAMES
    assert MemoryTagChanges.__annotations__.keys() == MemoryTags.__annotations__.keys()
    assert MemoryFilters.__annotations__.keys() > MemoryTags.__annotations__.keys()


def test_the_command_accepts_every_text_of_a_memory(tmp_path: Any) -> None:
    for command in (remember, list_memories):
        assert isinstance(command, click.Command)
        assert {parameter.name for parameter in command.params} >= TAG_NAMES
    (tmp_path / "lines").write_text(read(Memory, filled(memory_pb2.Memory())).to_json())
    [line] = read_records(str(tmp_path / "lines"), MEMORY_LINES, {}, {})
    expected = filled(memory_pb2.Memory())
    found = memory_to_pb(line.item)  # type: ignore[union-attr]
    assert (texts_of(found), found.scope) == (texts_of(expected), expected.scope)


def test_the_documents_of_the_client_name_every_text_of_a_memory() -> None:
    readme = (ROOT / "clients/python/README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(TAG_NAMES) if f"`{name}`" not in readme] == []


def test_the_server_stores_and_returns_every_text_of_a_memory() -> None:
    answer = stored(filled(memory_pb2.Memory()))
    assert texts_of(answer) == texts_of(filled(memory_pb2.Memory()))
    assert answer.scope == filled(memory_pb2.Memory()).scope


@pytest.mark.parametrize("name", sorted(TAG_NAMES))
def test_every_text_of_a_memory_can_be_changed(name: str) -> None:
    request = update_memory(ID, {name: "new"}, set_metadata=None, remove_metadata=(), ack="durable")
    [path] = request.update_mask.paths
    before = read_create(memory_pb2.CreateMemoryRequest(memory=filled(memory_pb2.Memory()))).memory
    after = memory_pb2.Memory()
    change = read_update(request)
    fill_memory(after, updated(before, change.memory, change))
    expected = filled(memory_pb2.Memory())
    setattr(expected.scope if path.startswith("scope.") else expected, name, "new")
    assert (texts_of(after), after.scope) == (texts_of(expected), expected.scope)


@pytest.mark.parametrize("name", sorted(TAG_NAMES))
def test_memories_can_be_found_by_every_text(name: str) -> None:
    assert name in FILTER_FIELDS.types
    which = keywords_to_pb(memory_pb2.MemoryFilter, {name: "wanted"}, MemoryFilters)
    where = read_list(memory_pb2.ListMemoriesRequest(filter=which)).where
    assert "wanted" in repr(record_filter(where, CONFIDENCE, NOW))
