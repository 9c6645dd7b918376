"""Fifty-four similar namespaces: nothing done in one affects another, even with ids of the others."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from mnemon.shared.tool_definitions import NOTHING_DELETED
from mnemon.v1 import facts_pb2, tools_pb2

from tests.support.colliding_namespaces import COLLIDING
from tests.support.server import Connection, failure_of
from tests.support.tool_messages import call, everything, put, recall, remember, struct

Namespace = tuple[str, ...]
Stored = dict[tuple[Namespace, str], dict[str, Any]]

SHARED = "shared"
"""A key that every namespace has."""


def inside(namespace: Sequence[str]) -> tools_pb2.ToolContext:
    """The context of a namespace whose labels fill placeholders. Braces in the labels are not templates."""
    config = {f"label{number}": label for number, label in enumerate(namespace)}
    return tools_pb2.ToolContext(namespace=[f"{{{key}}}" for key in config], config=struct(config))


async def fill(connection: Connection) -> dict[Namespace, str]:
    """Stores two facts with the same words in every namespace. Returns the ids that a tool assigned."""
    for namespace in COLLIDING:
        await put(connection.facts, namespace, SHARED, {"content": "The secret is safe.", "of": list(namespace)})
    return {n: await remember(connection.tools, "The secret is safe.", inside(n)) for n in COLLIDING}


async def stored(connection: Connection) -> Stored:
    """Every fact of the vault by namespace and key."""
    facts = await everything(connection.facts)
    return {(tuple(fact.namespace), fact.key): dict(fact.value) | {"revision": fact.revision} for fact in facts}


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.slow)])
def attacks(request: pytest.FixtureRequest) -> dict[Namespace, list[Namespace]]:
    """Whom each namespace attacks: a sixth of the others, or all of them."""
    numbered = [*enumerate(COLLIDING)]

    def victims(number: int) -> Iterator[Namespace]:
        for other, victim in numbered:
            if other != number and (request.param == "all" or (number + 5 * other) % 6 == 0):
                yield victim

    return {attacker: [*victims(number)] for number, attacker in numbered}


async def test_no_action_of_a_tool_reaches_an_id_of_another_namespace(
    connection: Connection, attacks: dict[Namespace, list[Namespace]]
) -> None:
    keys = await fill(connection)
    before = await stored(connection)
    assert len(before) == 2 * len(COLLIDING) == 108

    async def attack(attacker: Namespace, key: str) -> None:
        update = {"action": "update", "id": key, "content": "Mine now."}
        refused = await failure_of(call(connection.tools, "manage_memory", update, inside(attacker)))
        assert refused.code() is grpc.StatusCode.NOT_FOUND
        deleted = await call(connection.tools, "manage_memory", {"action": "delete", "id": key}, inside(attacker))
        # The answer is the same as for an id that never existed, so it does not reveal whether the id exists.
        assert deleted.content == NOTHING_DELETED.format(key)

    for attacker, victims in attacks.items():
        await asyncio.gather(*(attack(attacker, keys[victim]) for victim in victims))
    assert await stored(connection) == before


async def test_a_search_finds_only_its_own_namespace(connection: Connection) -> None:
    keys = await fill(connection)
    for namespace in COLLIDING:
        found = await recall(connection.tools, "secret", inside(namespace), limit=1_000)
        assert {(tuple(fact["namespace"]), fact["key"]) for fact in found} == {
            (namespace, SHARED),
            (namespace, keys[namespace]),
        }
        everywhere = {"content": "The secret is safe."}
        assert len(await recall(connection.tools, "secret", inside(namespace), filter=everywhere)) == 2


async def test_a_change_of_a_key_that_all_namespaces_have_affects_one(connection: Connection) -> None:
    await fill(connection)
    for number, namespace in enumerate(COLLIDING):
        before = await stored(connection)
        if number % 2:
            arguments = {"action": "delete", "id": SHARED}
            expected = {name: value for name, value in before.items() if name != (namespace, SHARED)}
        else:
            arguments = {"action": "update", "id": SHARED, "content": "Changed."}
            changed = before[namespace, SHARED] | {"content": "Changed.", "revision": 2}
            expected = before | {(namespace, SHARED): changed}
        await call(connection.tools, "manage_memory", arguments, inside(namespace))
        assert await stored(connection) == expected


async def test_no_call_on_facts_reaches_another_namespace(
    connection: Connection, attacks: dict[Namespace, list[Namespace]]
) -> None:
    keys = await fill(connection)
    facts, before = connection.facts, await stored(connection)

    async def attack(attacker: Namespace, key: str) -> None:
        refused = await failure_of(facts.GetFact(facts_pb2.GetFactRequest(namespace=attacker, key=key)))
        assert refused.code() is grpc.StatusCode.NOT_FOUND
        fact = facts_pb2.Fact(namespace=attacker, key=key, value=struct({"content": "Mine now."}))
        update = facts_pb2.PutFactRequest(fact=fact, mode=facts_pb2.PUT_MODE_UPDATE)
        assert (await failure_of(facts.PutFact(update))).code() is grpc.StatusCode.NOT_FOUND
        deletion = facts_pb2.DeleteFactRequest(namespace=attacker, key=key)
        assert (await failure_of(facts.DeleteFact(deletion))).code() is grpc.StatusCode.NOT_FOUND

    for attacker, victims in attacks.items():
        await asyncio.gather(*(attack(attacker, keys[victim]) for victim in victims))
        others = [victim for victim in COLLIDING if victim != attacker]
        names = [facts_pb2.FactName(namespace=attacker, key=keys[victim]) for victim in others]
        assert not (await facts.BatchGetFacts(facts_pb2.BatchGetFactsRequest(names=names))).facts
        own = facts_pb2.FactFilter(namespace=attacker)
        listed = (await facts.ListFacts(facts_pb2.ListFactsRequest(filter=own))).facts
        assert {tuple(fact.namespace) for fact in listed} == {attacker}
        search = facts_pb2.SearchFactsRequest(filter=own, query="secret", limit=1_000)
        results = (await facts.SearchFacts(search)).results
        assert {tuple(match.fact.namespace) for match in results} == {attacker}
        dry = await facts.DeleteFacts(facts_pb2.DeleteFactsRequest(filter=own, dry_run=True))
        assert dry.deleted_count == 2
    assert await stored(connection) == before


async def test_a_subtree_consists_of_the_namespaces_with_the_same_first_labels(connection: Connection) -> None:
    await fill(connection)
    for prefix in COLLIDING:
        below = {namespace for namespace in COLLIDING if namespace[: len(prefix)] == prefix}
        subtree = facts_pb2.FactFilter(namespace=prefix, subtree=True)
        listed = (await connection.facts.ListFacts(facts_pb2.ListFactsRequest(filter=subtree))).facts
        assert {tuple(fact.namespace) for fact in listed} == below
        search = facts_pb2.SearchFactsRequest(filter=subtree, query="secret", limit=1_000)
        results = (await connection.facts.SearchFacts(search)).results
        assert {tuple(match.fact.namespace) for match in results} == below


async def test_removing_a_namespace_removes_no_other(connection: Connection) -> None:
    await fill(connection)
    for namespace in COLLIDING[::5]:
        before = await stored(connection)
        own = facts_pb2.FactFilter(namespace=namespace)
        await connection.facts.DeleteFacts(facts_pb2.DeleteFactsRequest(filter=own))
        left = {name: value for name, value in before.items() if name[0] != namespace}
        assert await stored(connection) == left
    page = await connection.facts.ListNamespaces(facts_pb2.ListNamespacesRequest(page_size=1_000))
    kept = {namespace for namespace in COLLIDING if namespace not in COLLIDING[::5]}
    assert {tuple(namespace.labels) for namespace in page.namespaces} == kept


async def test_an_agent_named_user_sees_no_user_of_its_organisation(connection: Connection) -> None:
    users = tools_pb2.ToolContext(config=struct({"org_id": "acme", "user_id": "ada"}))
    agent = tools_pb2.ToolContext(config=struct({"org_id": "acme", "agent_id": "user"}))
    key = await remember(connection.tools, "Ada's secret.", users)

    assert await recall(connection.tools, "secret", agent) == []
    update = {"action": "update", "id": key, "content": "Mine now."}
    assert (
        await failure_of(call(connection.tools, "manage_memory", update, agent))
    ).code() is grpc.StatusCode.NOT_FOUND
    assert json.loads((await call(connection.tools, "search_memory", {"query": "secret"}, users)).content)
