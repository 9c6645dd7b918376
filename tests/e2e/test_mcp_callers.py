"""MCP over HTTP: a request with a credential is a call of its caller."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import mnemon
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from tests.support.access import bearer, guarded_server, make_key
from tests.support.mcp_sessions import http_process, text_of


@asynccontextmanager
async def session(url: str, mode: str, **headers: str) -> AsyncIterator[McpClient]:
    """An MCP client that sends these headers."""
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        McpClient(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def tell_apart(url: str, mode: str, ada: str, bob: str) -> None:
    """Two callers in turn find their own records."""
    async with (
        session(url, mode, **dict(bearer(ada))) as hers,
        session(url, mode, **dict(bearer(bob))) as his,
    ):
        await hers.call_tool("manage_memory", {"content": "Ada has a cat."})
        await his.call_tool("manage_memory", {"content": "Bob has a dog."})
        for tools, expected in ((hers, "Ada has a cat."), (his, "Bob has a dog."), (hers, "Ada has a cat.")):
            found = json.loads(text_of(await tools.call_tool("search_memory", {"query": "has a cat or dog"})))
            assert {each["value"]["content"] for each in found} == {expected}


async def test_each_request_is_made_as_the_caller_whose_credential_it_has(tmp_path: Path) -> None:
    ada, bob = (make_key(tmp_path, "writer", "--user", name, "--namespace", f"users.{name}") for name in ("ada", "bob"))
    async with guarded_server(tmp_path) as connection:
        with http_process(str(connection.server.address)) as process:
            url = await asyncio.to_thread(process.url)
            for mode in ("auto", "legacy"):
                await tell_apart(url, mode, ada, bob)
            async with mnemon.AsyncClient(str(connection.server.address), api_key=ada) as client:
                async with client.acting_as(bob) as acting:
                    assert (await acting.who_am_i()).users == ("bob",)
                assert (await client.who_am_i()).users == ("ada",)
                with pytest.raises(ValueError, match="credential must not be empty"):
                    client.acting_as(" ")
            # The command has no credential of its own here.
            for headers, expected in (
                ({}, "send a valid API key"),
                (dict(bearer("mn_0000000000000000_wrong")), "send a valid API key"),
                ({"authorization": "Basic YTpi"}, "the header must be `Authorization: Bearer`"),
            ):
                async with session(url, "legacy", **headers) as tools:
                    refused = await tools.call_tool("search_memory", {"query": "pets"})
                    assert refused.is_error
                    assert expected in text_of(refused)


async def test_recall_and_knowledge_include_what_is_shared_with_the_user_of_the_command(tmp_path: Path) -> None:
    admin = make_key(tmp_path, "admin")
    ada, bob = (make_key(tmp_path, "writer", "--user", name, "--namespace", f"user.{name}") for name in ("ada", "bob"))
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)
        async with mnemon.AsyncClient(address, api_key=ada) as client:
            await client.documents.put("plan", "The tomatoes grow by the wall.")
            await client.facts.put(("user", "ada", "garden"), "bed", {"vegetables": "tomatoes in two rows"})
            async with client.acting_as(admin) as acting:
                await acting.grants.add("user:bob", scope=mnemon.Scope("ada"))
                await acting.grants.add("user:bob", namespace=("user", "ada", "garden"))
        with http_process(address, "--user", "bob") as process:
            url = await asyncio.to_thread(process.url)
            for secret, is_found in ((bob, True), (admin, False)):
                async with session(url, "auto", **dict(bearer(secret))) as tools:
                    recalled = text_of(await tools.call_tool("recall", {"query": "tomatoes"}))
                    assert [each in recalled for each in ("by the wall", "two rows")] == [is_found, is_found]
                    known = text_of(await tools.call_tool("search_knowledge", {"query": "tomatoes"}))
                    assert ("by the wall" in known) is is_found
