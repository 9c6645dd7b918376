"""A write that is sent again has the same request id, by which the server executes it once."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from mnemon import Client
from mnemon.v1 import conflicts_pb2, episodic_pb2, facts_pb2, memory_pb2, rules_pb2, semantic_pb2

from tests.unit.client.scripted_server import UNAVAILABLE, scripted_server

ADA = ("user", "ada")
RENEWED = facts_pb2.RenewFactsResponse(results=[facts_pb2.RenewFactResult()])
WRITES: list[tuple[Callable[[Client], Any], Message]] = [
    (lambda client: client.conflicts.merge("a", "b"), conflicts_pb2.MergeMemoriesResponse()),
    (lambda client: client.conflicts.unmerge("d-1"), conflicts_pb2.UnmergeMemoryResponse()),
    (lambda client: client.facts.put(ADA, "tea", {}), facts_pb2.PutFactResponse()),
    (lambda client: client.facts.renew([(ADA, "tea")]), RENEWED),
    (lambda client: client.facts.delete(ADA, "tea"), facts_pb2.DeleteFactResponse()),
    (lambda client: client.facts.delete_many(ADA), facts_pb2.DeleteFactsResponse()),
    (lambda client: client.remember("text"), memory_pb2.CreateMemoryResponse()),
    (lambda client: client.memories.update("m-1", content="text"), memory_pb2.UpdateMemoryResponse()),
    (lambda client: client.memories.reinforce("m-1"), memory_pb2.ReinforceMemoryResponse()),
    (lambda client: client.memories.delete("m-1"), memory_pb2.DeleteMemoryResponse()),
    (lambda client: client.memories.undelete("m-1"), memory_pb2.UndeleteMemoryResponse()),
    (lambda client: client.memories.purge(type="x"), memory_pb2.PurgeMemoriesResponse()),
    (lambda client: client.rules.add({"name": "a"}), rules_pb2.RegisterRuleResponse()),
    (lambda client: client.rules.update("a", {"priority": 1}), rules_pb2.UpdateRuleResponse()),
    (lambda client: client.rules.delete("a"), rules_pb2.DeleteRuleResponse()),
    (lambda client: client.rules.load([{"name": "a"}]), rules_pb2.LoadRulesResponse()),
    (lambda client: client.rules.reset(), rules_pb2.ResetRulesResponse()),
    (lambda client: client.semantic.add("a", user="u"), semantic_pb2.SaveSemanticMemoryResponse()),
    (lambda client: client.semantic.delete_many(["m-1"]), semantic_pb2.DeleteSemanticMemoriesResponse()),
    (lambda client: client.timeline.add("task", "a", user="u"), episodic_pb2.RecordEventResponse()),
    (lambda client: client.timeline.delete_many(["e-1"]), episodic_pb2.PruneEventsResponse()),
]


@pytest.mark.parametrize(("write", "answer"), WRITES)
def test_a_retried_write_is_the_same_request(write: Callable[[Client], Any], answer: Message) -> None:
    with scripted_server(UNAVAILABLE, lambda *_: answer) as (address, server), Client(address) as client:
        write(client)

    first, again = server.requests
    assert first == again
    assert first.request_id
