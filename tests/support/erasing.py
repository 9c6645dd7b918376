"""Plants records of users with words that occur nowhere else, in every way of writing, and looks for their bytes."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from mnemon.v1 import (
    access_pb2,
    conversation_pb2,
    episodic_pb2,
    erase_pb2,
    facts_pb2,
    knowledge_store_pb2,
    memory_pb2,
    semantic_pb2,
)
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.quantized import round_vectors

from tests.support.databases import content_of, files_below

DIMENSION = 64


def word(*parts: str) -> str:
    """A word of letters that no other parts have, long enough for no accident."""
    digest = hashlib.sha256("/".join(parts).encode()).hexdigest()
    return "zq" + digest[:20].translate(str.maketrans("0123456789", "ghijklmnop")) + "qz"


@dataclass(frozen=True)
class Planted:
    """The marked data of one user."""

    user: str

    @property
    def name(self) -> str:
        """The user's id, which is a word of its own."""
        return word(self.user, "id")

    def text(self, kind: str) -> str:
        """A text of this user with words of its own."""
        return f"{self.user} said {word(self.user, kind)} and {word(self.user, kind, 'too')}"

    @property
    def vector(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A vector that no text has."""
        made = np.random.default_rng(int(hashlib.sha256(self.name.encode()).hexdigest()[:8], 16)).normal(size=DIMENSION)
        unit: np.ndarray[Any, np.dtype[np.float32]] = (made / np.linalg.norm(made)).astype(np.float32)
        return unit

    KINDS = ("document", "replaced", "memory", "deleted", "rewritten", "fact", "version", "said", "moved", "context")

    def traces(self) -> dict[str, bytes]:
        """The bytes that must not be left, by what they are of."""
        rounded = round_vectors(self.vector.reshape(1, -1), np.zeros(DIMENSION, np.float32))
        texts = {
            f"text {kind}": word(self.user, kind).encode()
            for kind in (*self.KINDS, "event", "message", "bridged", "merged")
        }
        model = HashingEmbedder()
        computed = model.embed([self.text("document")])[0]
        return {
            **texts,
            "user": self.name.encode(),
            "document id": word(self.user, "doc id").encode(),
            "event id": word(self.user, "event id").encode(),
            "conversation": word(self.user, "conversation").encode(),
            "message id": word(self.user, "message id").encode(),
            "project": word(self.user, "project").encode(),
            "payload": word(self.user, "payload").encode(),
            "tool call": word(self.user, "tool call").encode(),
            "fact key": word(self.user, "key").encode(),
            "metadata": word(self.user, "metadata").encode(),
            "vector": self.vector.tobytes()[:64],
            "end of vector": self.vector.tobytes()[-64:],
            "rounded vector": rounded.codes.tobytes()[:32],
            "computed vector": computed.tobytes(),
        }

    async def plant(self, stubs: Any) -> None:
        """Writes through every service."""
        await self._plant_documents(stubs)
        await self._plant_memories(stubs)
        await self._plant_facts(stubs)
        await self._plant_statements(stubs)
        await self._plant_events(stubs)
        await self._plant_messages(stubs)
        await self._plant_grants(stubs)

    async def _plant_documents(self, stubs: Any) -> None:
        request = knowledge_store_pb2.IndexDocumentRequest(request_id=f"r-{word(self.user, 'request')}")
        request.document.doc_id = word(self.user, "doc id")
        request.document.scope.user = self.name
        request.document.content = self.text("replaced")
        await stubs.store.IndexDocument(request)
        request.request_id = ""
        request.document.content = self.text("document")
        request.document.metadata["note"].string_value = f"note {word(self.user, 'metadata')}"
        await stubs.store.IndexDocument(request)

    async def _plant_memories(self, stubs: Any) -> None:
        request = memory_pb2.CreateMemoryRequest()
        request.memory.scope.user = self.name
        for kind in ("memory", "deleted", "rewritten"):
            request.memory.content = self.text(kind)
            made = (await stubs.memories.CreateMemory(request)).memory
            if kind == "deleted":
                await stubs.memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=made.memory_id))
            if kind == "rewritten":
                update = memory_pb2.UpdateMemoryRequest(memory=made)
                update.memory.content = "nothing of its own"
                update.update_mask.paths.append("content")
                await stubs.memories.UpdateMemory(update)

    async def _plant_facts(self, stubs: Any) -> None:
        request = facts_pb2.PutFactRequest()
        request.fact.namespace.extend(["user", self.name, "notes"])
        request.fact.key = word(self.user, "key")
        for kind in ("version", "fact"):
            request.fact.value.update({"content": self.text(kind)})
            await stubs.facts.PutFact(request)

    async def _plant_statements(self, stubs: Any) -> None:
        resolve = semantic_pb2.CONFLICT_POLICY_RESOLVE
        for kind, says in (("said", "I live in Berlin"), ("moved", "I do not live in Berlin")):
            request = semantic_pb2.SaveSemanticMemoryRequest(conflict_policy=resolve)
            request.memory.scope.user = self.name
            request.memory.content = f"{says}: {word(self.user, kind)}"
            request.memory.keywords.extend(["berlin", "home"])
            await stubs.semantic.SaveSemanticMemory(request)
        request = semantic_pb2.SaveSemanticMemoryRequest(embedding=self.vector.tolist())
        request.memory.scope.user = self.name
        request.memory.content = f"with a vector of its own {word(self.user, 'merged')}"
        await stubs.semantic.SaveSemanticMemory(request)

    async def _plant_events(self, stubs: Any) -> None:
        now = datetime.now(UTC)
        for number, kind in enumerate(("event", "context", "bridged")):
            request = episodic_pb2.RecordEventRequest()
            event = request.event
            event.event_id = word(self.user, "event id") if kind == "event" else ""
            event.scope.user, event.scope.persona = self.name, "butler"
            event.event_type = "task" if kind == "bridged" else "conversation"
            event.importance = 0.95 if kind == "bridged" else 0.1
            event.content = self.text(kind) if kind != "context" else "something happened"
            event.context = self.text(kind) if kind == "context" else ""
            event.event_time.FromDatetime(now - timedelta(minutes=number))
            await stubs.episodic.RecordEvent(request)

    async def _plant_messages(self, stubs: Any) -> None:
        request = conversation_pb2.AppendMessagesRequest(conversation_id=word(self.user, "conversation"))
        request.scope.user = self.name
        message = request.messages.add(role="user", content=self.text("message"))
        message.message_id, message.payload = word(self.user, "message id"), word(self.user, "payload")
        message.tool_calls.add(name="look", arguments=word(self.user, "tool call"))
        await stubs.conversations.AppendMessages(request)

    async def _plant_grants(self, stubs: Any) -> None:
        """To the user, and of the user's records."""
        shared = access_pb2.CreateGrantRequest(subject="user:zoe")
        shared.scope.user, shared.scope.project = self.name, word(self.user, "project")
        for request in (shared, access_pb2.CreateGrantRequest(subject=f"user:{self.name}", namespace=["org", "acme"])):
            await stubs.access.CreateGrant(request)


def found_in(folder: Path, traces: dict[str, bytes]) -> dict[str, list[str]]:
    """The files that hold these bytes, also as UTF-16, by what they are of."""
    found: dict[str, list[str]] = {}
    for path, data in files_below(folder, content_of):
        for kind, trace in traces.items():
            wide = trace.decode("utf-8", "ignore").encode("utf-16-le")
            if trace in data or (len(wide) == 2 * len(trace) and wide in data):
                found.setdefault(kind, []).append(str(path.relative_to(folder)))
    return found


def is_signed(receipt: Any, public_key: bytes) -> bool:
    """Whether the receipt is signed with this key."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(receipt.signature, receipt.text.encode())
    except InvalidSignature:
        return False
    return True


async def erase(stubs: Any, **request: Any) -> erase_pb2.ErasureReceipt:
    """Erases; returns the receipt, after progress."""
    messages: Iterable[erase_pb2.EraseResponse]
    messages = [each async for each in stubs.erasures.Erase(erase_pb2.EraseRequest(**request))]
    *progress, last = messages
    assert last.HasField("receipt"), last
    assert all(each.HasField("progress") for each in progress)
    return last.receipt
