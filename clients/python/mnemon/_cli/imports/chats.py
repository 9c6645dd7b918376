"""Converts the conversations that ChatGPT and Claude export to documents: one for each message of a person or a model.

A message keeps its id, so a later export of the same conversations adds only new messages.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mnemon._cli.imports.facts import Record, key_of, time_of
from mnemon._cli.imports.found import Found, Item, LeftOut, Place, Raw, as_object
from mnemon._messages.convert import invalid
from mnemon._values.documents import Document, MetadataValue

NO_TEXT = "without text"
OTHER_ROLE = "not of a person or a model"
_MARK = re.compile("([ \\t]*)\ue200([^\ue200\ue201]*)\ue201|[\ue200-\ue206]")
"""A mark of ChatGPT, such as a citation, in characters for private use; and the characters themselves."""
_ROLES = {"user": "user", "human": "user", "assistant": "assistant"}


def message(place: Place, doc_id: str, text: str, role: object, **metadata: MetadataValue | None) -> Found:
    """The document of a message by a person or a model, unless it has no text."""
    if not isinstance(role, str) or role not in _ROLES:
        return LeftOut(place, OTHER_ROLE)
    if not text.strip():
        return LeftOut(place, NO_TEXT)
    said = {name: value for name, value in metadata.items() if value is not None and value != ""}
    return Item(place, Document(doc_id, text, {"role": _ROLES[role], **said}))


def texts_of(parts: object, types: tuple[str, ...] = ("text",)) -> str:
    """The text of a message: a plain string, or the parts of these types."""
    if isinstance(parts, str):
        return parts
    found = parts if isinstance(parts, list) else ()
    return _joined(part.get("text") for part in found if isinstance(part, Mapping) and part.get("type") in types)


def chatgpt(raw: Raw) -> Iterator[Found]:
    """The messages of a conversation of ChatGPT, on the branch that it shows."""
    conversation = as_object(raw)
    nodes = conversation.get("mapping")
    if not isinstance(nodes, dict):
        raise invalid("mapping", "must be the object with the messages")
    conversation_id = key_of(conversation, "conversation_id" if conversation.get("conversation_id") else "id")
    branch = _branch(nodes, conversation.get("current_node"))
    for node_id, said in branch.items():
        yield message(
            raw.place,
            f"chatgpt/{conversation_id}/{said.get('id') or node_id}",
            _chatgpt_text(_object(said.get("content"))),
            _chatgpt_role(said),
            source="chatgpt",
            conversation=conversation_id,
            title=str(conversation.get("title") or ""),
            time=time_of(said, "create_time"),
        )
    others = sum(1 for node in nodes.values() if _object(_object(node).get("message"))) - len(branch)
    if others > 0:
        yield LeftOut(raw.place, "on another branch", others)


def _branch(nodes: Mapping[str, Any], last: object) -> dict[str, dict[str, Any]]:
    """The messages from the first one to the current one, by their nodes."""
    node_id = last if isinstance(last, str) and last in nodes else _newest_leaf(nodes)
    found: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    while node_id in nodes and node_id not in seen:
        seen.add(node_id)
        node = _object(nodes[node_id])
        if said := _object(node.get("message")):
            found[node_id] = said
        node_id = str(node.get("parent"))
    return dict(reversed(found.items()))


def _newest_leaf(nodes: Mapping[str, Any]) -> str:
    """The last node without children; older exports do not name the current one."""
    leaves = [node_id for node_id, node in nodes.items() if not _object(node).get("children")]
    return max(leaves, key=lambda node_id: _seconds(_object(nodes[node_id]).get("message")), default="")


def _seconds(said: object) -> float:
    found = _object(said).get("create_time")
    return float(found) if isinstance(found, int | float) else 0.0


def _chatgpt_role(said: Record) -> object:
    """The role of the author; None for hidden messages and tool calls."""
    is_hidden = _object(said.get("metadata")).get("is_visually_hidden_from_conversation")
    is_call = said.get("recipient", "all") != "all"
    return None if is_hidden or is_call else _object(said.get("author")).get("role")


def _chatgpt_text(content: Record) -> str:
    """The text of a message; its parts may include objects: pictures, and speech with a transcript."""
    parts = content.get("parts")
    given = parts if isinstance(parts, list) else [content.get("text")]
    text = _joined(part.get("text") if isinstance(part, dict) else part for part in given)
    return _MARK.sub(_shown, text)


def _shown(mark: re.Match[str]) -> str:
    """The words that ChatGPT shows for a mark: the name of an entity or the title of a link; none for a citation."""
    kind, *parts = (mark[2] or "").split("\ue202")
    words = ""
    if kind == "entity" and parts:
        try:
            [_, words, *_] = json.loads(parts[0])
        except (ValueError, TypeError):
            words = parts[0]
    elif kind == "url":
        words = " ".join(parts)
    return f"{mark[1]}{words}" if words else ""


def claude(raw: Raw) -> Iterator[Found]:
    """The messages of a conversation of Claude, and the texts that were attached to them."""
    conversation = as_object(raw)
    messages = conversation.get("chat_messages")
    if not isinstance(messages, list):
        raise invalid("chat_messages", "must be the list of messages")
    conversation_id = key_of(conversation, "uuid")
    for said in map(_object, messages):
        doc_id = f"claude/{conversation_id}/{key_of(said, 'uuid')}"
        text = texts_of(said.get("content")) or str(said.get("text") or "")
        known = {
            "source": "claude",
            "conversation": conversation_id,
            "title": str(conversation.get("name") or ""),
            "time": time_of(said, "created_at"),
        }
        attached = said.get("attachments") or ()
        if text.strip() or not attached:
            yield message(raw.place, doc_id, text, said.get("sender"), **known)
        for number, each in enumerate(map(_object, attached), start=1):
            name, extract = str(each.get("file_name") or ""), str(each.get("extracted_content") or "")
            yield message(raw.place, f"{doc_id}/{number}", extract, said.get("sender"), **known, file_name=name)


def _joined(texts: Iterable[object]) -> str:
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
