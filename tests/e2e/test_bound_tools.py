"""The tools of keys that are bound to users or namespaces: a call of a tool can do no more than its caller."""

import json
from collections.abc import Sequence
from pathlib import Path

import mnemon
import pytest

from tests.e2e.test_bounds import people
from tests.support.tool_endpoints import saying, tool_server

HERS, HIS = ("users", "ada", "memories"), ("users", "bob", "memories")
CREATE = '[[ABP_TOOL:manage_memory]]{"content": "bob was here"}[[END_ABP_TOOL]]'
SEARCH = '[[ABP_TOOL:search_memory]]{"query": "cats"}[[END_ABP_TOOL]]'


async def found(client: mnemon.AsyncClient, namespace: Sequence[str]) -> list[str]:
    """What the tool for searches finds."""
    output = await client.tools.call("search_memory", {"query": "cats"}, namespace=namespace)
    return [each["value"]["content"] for each in json.loads(output.content)]


async def test_the_memory_tools_reach_only_the_namespaces_of_the_key(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        assert [tool.name for tool in await each.bob.tools.list()] == ["manage_memory", "search_memory"]
        made = await each.ada.tools.call("manage_memory", {"content": "Ada has a cat."}, namespace=HERS)
        key = made.content.removeprefix("created memory ")
        await each.bob.tools.call("manage_memory", {"content": "Bob has a cat."}, namespace=HIS)
        assert await found(each.ada, HERS) == ["Ada has a cat."]
        assert await found(each.bob, HIS) == ["Bob has a cat."]
        assert await found(each.bob, HERS) == []
        # Without a context, the namespace is the only one of the key.
        await each.bob.tools.call("manage_memory", {"content": "Bob has a dog."})
        alone = await each.bob.tools.call("search_memory", {"query": "cats and dogs"})
        assert [(one["value"]["content"], one["namespace"]) for one in json.loads(alone.content)] == [
            ("Bob has a dog.", ["users", "bob"])
        ]
        with pytest.raises(mnemon.ConfigurationError):
            await each.admin.tools.call("manage_memory", {"content": "Whose?"})
        with pytest.raises(mnemon.PermissionDeniedError, match=r"namespace must be within 'users\.bob'"):
            await each.bob.tools.call("manage_memory", {"content": "bob was here"}, namespace=HERS)
        with pytest.raises(mnemon.FactNotFoundError):
            await each.bob.tools.call(
                "manage_memory", {"action": "update", "id": key, "content": "bob was here"}, namespace=HERS
            )
        deletion = await each.bob.tools.call("manage_memory", {"action": "delete", "id": key}, namespace=HERS)
        missing = await each.bob.tools.call("manage_memory", {"action": "delete", "id": "none"}, namespace=HERS)
        assert deletion.content.replace(key, "none") == missing.content
        assert await found(each.admin, HERS) == ["Ada has a cat."]


async def test_calls_in_a_text_reach_only_the_namespaces_of_the_key(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        await each.ada.tools.execute(CREATE.replace("bob was here", "Ada has a cat."), namespace=HERS)
        executed = await each.bob.tools.execute(CREATE + SEARCH, namespace=HERS)
        refused, searched = executed.results
        assert refused.error is not None
        assert "users.bob" in str(refused.error)
        assert searched.output is not None
        assert json.loads(searched.output.content) == []
        assert (await each.bob.tools.parse(CREATE)).calls[0].tool == "manage_memory"
        with pytest.raises(mnemon.PermissionDeniedError):
            await each.bob.tools.stats()
        assert [fact.value async for fact in each.admin.facts.list(subtree=True)] == [{"content": "Ada has a cat."}]


async def test_a_forwarded_call_carries_no_namespace_or_request_id_of_another_caller(tmp_path: Path) -> None:
    with tool_server(saying("sunny")) as endpoint:
        file = tmp_path / "tools.toml"
        file.write_text(
            f"[[tool]]\nname = 'weather'\nhttp = '{endpoint.url}'\ndescription = 'Tells it.'\n"
            'parameters = \'{"type": "object"}\'\n'
        )
        async with people(tmp_path / "data", tools_file=file, tool_endpoints_allowed=("127.0.0.1",)) as each:
            for namespace in (HERS, ("users",), ("users", "bobby")):
                with pytest.raises(mnemon.PermissionDeniedError):
                    await each.bob.tools.call("weather", {}, namespace=namespace)
            assert endpoint.received == []
            await each.bob.tools.call("weather", {})
            assert json.loads(endpoint.received.pop().headers["mnemon-namespace"]) == ["users", "bob"]
            for client, namespace in ((each.ada, HERS), (each.bob, HIS), (each.bob, HIS), (each.admin, HIS)):
                output = await client.tools.call("weather", {}, namespace=namespace, request_id="the same")
                assert output.content == "sunny"
            hers, his, again, admins = (one.headers for one in endpoint.received)
            assert json.loads(his["mnemon-namespace"]) == [*HIS]
            assert his["idempotency-key"] == again["idempotency-key"]
            assert len({one["idempotency-key"] for one in (hers, his, admins)}) == 3
