"""Short helpers for messages of the fact service."""

from collections.abc import Sequence
from typing import Any

import grpc
from mnemon.v1 import facts_pb2 as pb

from tests.support.server import failure_of, reason
from tests.support.tool_messages import struct

ADA, BOB = ("user", "ada"), ("user", "bob")


def fact(key: str, namespace: Sequence[str] = ADA, **value: Any) -> pb.Fact:
    """A fact of some keys and values."""
    return pb.Fact(namespace=namespace, key=key, value=struct(value))


def put_request(key: str, **terms: Any) -> pb.PutFactRequest:
    """A request to store a fact whose value is its own key."""
    return pb.PutFactRequest(fact=fact(key, content=f"this is {key}"), **terms)


async def get_fact(facts: Any, key: str, namespace: Sequence[str] = ADA, **how: Any) -> pb.Fact:
    """The fact of this name."""
    return (await facts.GetFact(pb.GetFactRequest(namespace=namespace, key=key, **how))).fact


async def search(facts: Any, query: str = "", namespace: Sequence[str] = ADA, **how: Any) -> list[str]:
    """The keys of the results, best first."""
    where = pb.FactFilter(namespace=namespace, subtree=how.pop("subtree", False), filter=how.pop("where", None))
    answer = await facts.SearchFacts(pb.SearchFactsRequest(filter=where, query=query, **how))
    return [match.fact.key for match in answer.results]


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    """Status and reason of a call that fails."""
    error = await failure_of(call)
    return error.code(), reason(error)
