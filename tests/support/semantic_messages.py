"""Short helpers for messages about statements."""

import asyncio
from typing import Any

from mnemon.v1 import conflicts_pb2
from mnemon.v1 import semantic_pb2 as pb

_TERMS = ("embedding", "conflict_policy", "rule", "request_id")
DIMENSION = 64
"""Of the hashing embedder."""


def statement(content: str = "Ada lives in Berlin.", user: str = "ada", **fields: Any) -> pb.SemanticMemory:
    """A statement of a user. `scope` adds further fields of its scope."""
    scope = {"user": user, **fields.pop("scope", {})}
    return pb.SemanticMemory(content=content, scope=scope, **fields)


def save(content: str = "Ada lives in Berlin.", **fields: Any) -> pb.SaveSemanticMemoryRequest:
    """A request to store a statement, with fields of the statement and of the request."""
    terms = {key: fields.pop(key) for key in _TERMS if key in fields}
    return pb.SaveSemanticMemoryRequest(memory=statement(content, **fields), **terms)


def run_of(*requests: pb.SaveSemanticMemoryRequest) -> pb.BulkSaveSemanticMemoriesRequest:
    """A run of statements in a bulk stream."""
    return pb.BulkSaveSemanticMemoriesRequest(requests=requests)


async def know(semantic: Any, *contents: str, **fields: Any) -> list[pb.SemanticMemory]:
    """Stores one statement per content, all with the same fields."""
    return [(await semantic.SaveSemanticMemory(save(content, **fields))).memory for content in contents]


async def contents_known(semantic: Any, **request: Any) -> list[str]:
    """The contents of all statements that a list request selects, in order, from one page."""
    page = await semantic.ListSemanticMemories(pb.ListSemanticMemoriesRequest(page_size=1000, **request))
    assert not page.next_page_token
    return [memory.content for memory in page.memories]


async def status_of(semantic: Any) -> pb.GetIndexStatusResponse:
    """The status of the index."""
    return await semantic.GetIndexStatus(pb.GetIndexStatusRequest())


async def until_state(semantic: Any, state: int, timeout_s: float = 60.0) -> pb.GetIndexStatusResponse:
    """Waits until the index is in this state. Returns the status."""
    async with asyncio.timeout(timeout_s):
        while (status := await status_of(semantic)).state != state:  # noqa: ASYNC110 - the server sends no event
            await asyncio.sleep(0.01)
    return status


def axis(*weights: float) -> list[float]:
    """A vector that begins with these numbers and is 0 elsewhere."""
    return [*weights, *[0.0] * (DIMENSION - len(weights))]


def by_id(memory_id: str) -> conflicts_pb2.MemoryReference:
    """A reference to a stored statement."""
    return conflicts_pb2.MemoryReference(memory_id=memory_id)


def given(content: str, user: str = "ada", **fields: Any) -> conflicts_pb2.MemoryReference:
    """A reference to a statement within the call."""
    return conflicts_pb2.MemoryReference(memory=statement(content, user, **fields))
