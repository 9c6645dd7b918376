"""Fifty namespaces built to collide: a tool changes and finds only records of its own, whatever the ids."""

import json

from mnemon_server.domain.facts import FactFilter
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.tools import ToolContext

from tests.support.colliding_namespaces import COLLIDING
from tests.support.tool_runners import OpenedTools

SHARED_KEY = "shared"
LABELS = [f"label_{number}" for number in range(10)]


def context_of(labels: tuple[str, ...]) -> ToolContext:
    """Every label comes from the configuration, so none is read as a placeholder."""
    names = LABELS[: len(labels)]
    return ToolContext(namespace=tuple(f"{{{name}}}" for name in names), config=dict(zip(names, labels, strict=True)))


async def found(tools: OpenedTools, labels: tuple[str, ...]) -> list[tuple[str, str, str]]:
    output = await tools.output("search_memory", context_of(labels), query="secret", limit=1_000)
    assert {match.fact.namespace for match in output.artifact} <= {labels}
    return sorted(
        ("/".join(match["namespace"]), match["key"], match["value"]["content"]) for match in json.loads(output.content)
    )


async def test_a_key_that_all_share_is_changed_only_in_its_own_namespace(tools: OpenedTools) -> None:
    for labels in COLLIDING:
        await tools.facts.put(SHARED_KEY, "secret", labels)
    kept = list(COLLIDING)
    for labels in COLLIDING[::7]:
        await tools.manage(context_of(labels), action="delete", id=SHARED_KEY)
        kept.remove(labels)
    for labels in COLLIDING[1::7]:
        await tools.manage(context_of(labels), action="update", id=SHARED_KEY, content="changed")
    page = await tools.facts.store.list(FactFilter(namespace=None, subtree=True), limit=1_000)
    assert {(fact.namespace, fact.value["content"]) for fact in page.facts} == {
        (labels, "changed" if labels in COLLIDING[1::7] else "secret") for labels in kept
    }
    assert len(page.facts) == len(kept)


async def test_a_parent_namespace_gives_no_access_to_its_children(tools: OpenedTools) -> None:
    await tools.facts.put("below", "secret", Namespace(("org", "acme", "user", "ada")))
    assert await found(tools, ("org", "acme")) == []
    assert await found(tools, ("org", "acme", "user")) == []
    assert [key for _, key, _ in await found(tools, ("org", "acme", "user", "ada"))] == ["below"]
