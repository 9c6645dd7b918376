"""An argument of a wrong type is refused before anything is sent, and the error names it."""

import asyncio
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import grpc
import mnemon
import numpy as np
import pytest
from mnemon import AsyncClient, Client, InvalidArgumentError, Scope, SemanticMemory
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.unit.client.scripted_server import found, scripted_server
from tests.unit.client.test_client_shape import NOUNS

EARLIEST = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
WRONG: dict[Any, Any] = {
    int: "5",
    float: "0.5",
    bool: "yes",
    str: 5,
    Scope: "ada",
    datetime: "soon",
    Iterable: 5,
    Sequence: 5,
    Mapping: 5,
    SemanticMemory: 5,
    mnemon.Quotas: 5,
}
RIGHT: dict[Any, Any] = {
    str: "add",
    float: 0.5,
    datetime: datetime.now(UTC),
    Iterable: ["a"],
    Sequence: ["a"],
    SemanticMemory: SemanticMemory("a"),
}
RIGHT_OF_NAME: dict[str, Any] = {
    "archive": [{}],
    "arguments": {},
    "documents": [("a", "b")],
    "facts.items": [mnemon.Fact(("a",), "key", {"a": 1})],
    "given": [{"name": "a"}],
    "items": ["a"],
    "messages": [{"role": "user", "content": "a"}],
    "names": [(("a",), "key")],
    "role": "reader",
    "rule": {"name": "a"},
    "value": {"a": 1},
}


def counted(request: pb.CountDocumentsRequest, context: grpc.ServicerContext) -> pb.CountDocumentsResponse:
    return pb.CountDocumentsResponse(count=1)


def kinds(annotation: Any) -> list[Any]:
    """The types that an annotation allows, without None and without their parameters."""
    members = get_args(annotation) if NoneType in get_args(annotation) or "|" in str(annotation) else (annotation,)
    return [get_origin(each) or each for each in members if each is not NoneType]


def right(noun: str, parameter: inspect.Parameter) -> Any:
    """A valid value of an argument."""
    for name in (f"{noun}.{parameter.name}", parameter.name):
        if name in RIGHT_OF_NAME:
            return RIGHT_OF_NAME[name]
    return next(RIGHT[kind] for kind in kinds(parameter.annotation) if kind in RIGHT)


def arguments(client: Client) -> Iterator[tuple[str, str, str, Any]]:
    """Each argument of one type, of each public method: the object, the method, the argument and its type."""
    for noun in [*NOUNS, "keys", "tenants"]:
        methods = inspect.getmembers(getattr(client, noun), inspect.ismethod)
        for name, method in [each for each in methods if not each[0].startswith("_")]:
            for argument, annotation in annotations(method):
                [kind, *others] = kinds(annotation)
                if kind in WRONG and not others:
                    yield noun, name, argument, kind


def annotations(method: Any) -> Iterator[tuple[str, Any]]:
    """Each argument of a method with its annotation, also those of `**which`."""
    for each in inspect.signature(method).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            yield from get_type_hints(get_args(each.annotation)[0]).items()
        else:
            yield each.name, each.annotation


def field_named(client: Client, noun: str, name: str, argument: str, kind: Any) -> str:
    """The field that the error names if this argument has a wrong type and all others are right."""
    method = getattr(getattr(client, noun), name)
    given = {"content": "a"} if (noun, name) == ("memories", "update") else {}
    for each in inspect.signature(method).parameters.values():
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD:
            given[each.name] = right(noun, each)
    if (name, argument) == ("unmerge", "request_id"):
        given["decision_id"] = "a"
    with pytest.raises(InvalidArgumentError) as raised:  # noqa: PT012 -- bulk methods return the error of each item
        result = method(**{**given, argument: WRONG[kind]})
        raise next(result).error
    return str(raised.value.violations[0].field.split("[")[0].split(".")[-1])


def test_an_argument_of_a_wrong_type_is_named() -> None:
    with Client("127.0.0.1:1", timeout=1) as client:
        every = list(arguments(client))
        assert len(every) > 500
        for noun, name, argument, kind in every:
            field = field_named(client, noun, name, argument, kind)
            assert field in {argument, argument.replace("_id", "_ids")}, f"{noun}.{name}({argument})"


@pytest.mark.parametrize(
    ("call", "field", "right"),
    [
        (lambda client: client.memories.search("a", limit="5"), "limit", "must be a whole number, not '5'"),
        (lambda client: client.memories.search("a", limit=True), "limit", "must be a whole number, not True"),
        (
            lambda client: client.facts.put("user.a@b.co.uk", "k", {}),
            "namespace",
            "must be a sequence of labels, such as ('user', 'a@b.co.uk')",
        ),
        (lambda client: client.memories.list_page(page_size=10**30), "page_size", "must fit into 64 bits"),
        (lambda client: client.timeline.list(last_days=0.5), "last_days", "whole number"),
        (
            lambda client: client.memories.search("a", timeout=timedelta(seconds=5)),
            "timeout",
            "its total_seconds() is one",
        ),
        (
            lambda client: client.documents.search("a", scope="ada"),
            "scope",
            'must be a Scope, such as Scope(user="ada")',
        ),
        (
            lambda client: client.memories.search("a", created_from=EARLIEST),
            "created_from",
            "within the years 1 to 9999 in UTC",
        ),
        (lambda client: client.memories.forecast(timedelta.max), "by", "within the years 1 to 9999"),
    ],
)
def test_an_error_says_what_would_be_right(call: Any, field: str, right: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidArgumentError) as raised:
        next(iter(call(client)))

    [violation] = raised.value.violations
    assert violation.field == field
    assert right in violation.description


async def test_the_asyncio_client_names_the_argument_too() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(InvalidArgumentError, match="limit: must be a whole number"):
            await client.memories.search("a", limit="5")  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(
    ("noun", "method", "field"),
    [
        ("documents", "put_many", "documents"),
        ("memories", "add_many", "items"),
        ("facts", "put_many", "items"),
        ("semantic", "add_many", "items"),
        ("timeline", "add_many", "items"),
    ],
)
def test_a_text_instead_of_a_list_is_not_stored_letter_by_letter(noun: str, method: str, field: str) -> None:
    with (
        Client("127.0.0.1:1") as client,
        pytest.raises(mnemon.InvalidArgumentError, match=f"^{field}: .*such as a list"),
    ):
        list(getattr(getattr(client, noun), method)("hello"))


def test_numbers_of_numpy_are_numbers() -> None:
    metadata = {"n": np.int64(5), "x": np.float32(0.5), "b": np.True_}
    with scripted_server(found, counted) as (address, server), Client(address) as client:
        client.documents.get("a", timeout=np.float64(5))
        client.documents.count(filters=metadata)  # type: ignore[arg-type] # not in the annotation

    sent = server.requests[1].filters
    assert [sent["n"].int_value, sent["x"].double_value, sent["b"].bool_value] == [5, 0.5, True]


def test_an_unknown_argument_names_the_one_that_may_be_meant() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(TypeError, match="argument 'usr'; did you mean 'user'"):
        client.memories.search("a", usr="ada")  # type: ignore[call-arg] # wrong on purpose
    with Client("127.0.0.1:1") as client, pytest.raises(TypeError, match="did you mean 'min_importance'"):
        client.bridge.update_policy(min_importanc=0.8)  # type: ignore[call-arg] # wrong on purpose


def test_an_asyncio_client_works_in_a_second_event_loop() -> None:
    with scripted_server(found) as (address, _):
        client = AsyncClient(address)

        async def read() -> str:
            return (await client.documents.get("a")).content

        assert [asyncio.run(read()), asyncio.run(read())] == ["text", "text"]
        asyncio.run(client.close())


async def test_an_asyncio_client_in_two_event_loops_at_once_says_so() -> None:
    with scripted_server(found) as (address, _):
        async with AsyncClient(address) as client:
            await client.documents.get("a")
            with pytest.raises(RuntimeError, match="belongs to one event loop at a time; make a client for each"):
                await asyncio.to_thread(lambda: asyncio.run(client.documents.get("a")))
