"""Conversations of a server with a scripted extractor, and what becomes of them."""

from typing import Any

import mnemon

from tests.support.server import Connection, eventually

FAST = {"extract_quiet_s": 0.0, "extract_retry_s": 0.01, "extract_model": "scripted"}


def settings_for(port: int, **settings: Any) -> dict[str, Any]:
    """Settings of a server whose extractor is there."""
    return {"extract_endpoint": f"http://127.0.0.1:{port}/v1", **FAST, **settings}


def connect(server: Connection) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(server.server.address))


async def turn_on(client: mnemon.AsyncClient) -> None:
    await client.bridge.update_policy(extract="model")


async def say(client: mnemon.AsyncClient, *texts: str, to: str = "c1", user: str = "ada", **scope: str) -> list[str]:
    """Adds messages of a user; returns the ids of their events."""
    turns = [{"role": "user", "content": text} for text in texts]
    return [each.event_id for each in await client.conversations.append(to, turns, user=user, **scope)]


async def extraction(client: mnemon.AsyncClient) -> mnemon.ExtractionStatus:
    """The status once nothing waits any more, or what waits is held up."""

    async def is_settled() -> bool:
        status = await client.bridge.status()
        found = status.extraction
        return status.queue_depth == 0 and found is not None and (found.waiting_count == 0 or bool(found.message))

    await eventually(is_settled)
    found = (await client.bridge.status()).extraction
    assert found is not None
    return found


async def known(client: mnemon.AsyncClient, user: str = "ada") -> dict[str, mnemon.SemanticMemory]:
    """The visible statements of a user, by content."""
    return {each.content: each async for each in client.semantic.list(user=user)}


async def until_known(client: mnemon.AsyncClient, contents: set[str]) -> None:
    async def is_so() -> bool:
        return {*await known(client)} == contents

    await eventually(is_so)
