"""Small requests for large answers, and how much memory they cost the server process, measured from outside."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from mnemon import AsyncClient, Client
from mnemon.v1 import facts_pb2, facts_pb2_grpc, tools_pb2, tools_pb2_grpc

from tests.support.http2 import raw_connection
from tests.support.server import ServerProcess, server_process

MIB = 1 << 20
EVE = ("user", "eve")
COUNT = 12
SEARCH = (
    '[[ABP_TOOL:search_memory]] {"action": "search_memory", "parameters": {"query": "apple", "limit": 100}}'
    " [[END_ABP_TOOL]]"
)
NOTE = SEARCH.replace("search_memory", "manage_memory").replace('"query": "apple", "limit": 100', '"content": "a note"')
NOTE = NOTE.replace('"action": "manage_memory"', '"action": "create"')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server process with facts of a megabyte each."""
    with server_process(tmp_path_factory.mktemp("data")) as server:
        with Client(server.address()) as client:
            for number in range(COUNT):
                value = {"t": "apple", "content": f"{number} " + "y" * 1_000_000}
                client.facts.put(EVE, f"k{number}", value, index=["t"])
        yield server


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    """A connection that accepts large answers."""
    with grpc.insecure_channel(server.address(), [("grpc.max_receive_message_length", 64 * MIB)]) as channel:
        yield channel


def most_bytes(server: ServerProcess) -> int:
    """The peak memory of the process so far."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_a_thousand_names_cost_no_more_than_an_answer(server: ServerProcess, channel: grpc.Channel) -> None:
    names = [facts_pb2.FactName(namespace=EVE, key=f"k{number % COUNT}") for number in range(1_000)]
    before = most_bytes(server)
    stub = facts_pb2_grpc.FactServiceStub(channel)
    with ThreadPoolExecutor(8) as threads:
        answers = list(
            threads.map(lambda _: stub.BatchGetFacts(facts_pb2.BatchGetFactsRequest(names=names)), range(16))
        )
    assert {(len(answer.facts), answer.truncated, len(answer.remaining)) for answer in answers} == {
        (3, True, COUNT - 3)
    }
    assert most_bytes(server) - before < 64 * MIB


async def test_answers_that_are_not_read_do_not_hold_up_those_of_others(server: ServerProcess) -> None:
    request = facts_pb2.BatchGetFactsRequest(names=[facts_pb2.FactName(namespace=EVE, key=f"k{i}") for i in range(3)])
    async with raw_connection(server.address()) as raw, AsyncClient(server.address()) as client:
        for _ in range(6):
            await raw.call("/mnemon.v1.FactService/BatchGetFacts", request.SerializeToString())
        await raw.greeted()
        assert len(await client.facts.get_many([(EVE, f"k{number}") for number in range(3)])) == 3


def test_the_client_gets_all_values(server: ServerProcess) -> None:
    with Client(server.address()) as client:
        names = [(EVE, f"k{number % COUNT}") for number in range(COUNT + 1)]
        assert [fact.key for fact in client.facts.get_many(names)] == [key for _, key in names]
        answer = client.facts.search("apple", namespace=EVE, limit=COUNT)
        assert (len(answer), answer.truncated) == (3, True)


def test_the_calls_of_one_text_share_one_answer(server: ServerProcess, channel: grpc.Channel) -> None:
    request = tools_pb2.ExecuteTextRequest(text="\n".join([SEARCH] * 62 + [NOTE]), response_format=2)
    request.context.config.update({"user_id": "eve"})
    request.context.namespace.extend(EVE)
    before = most_bytes(server)
    found, *others, noted = tools_pb2_grpc.ToolServiceStub(channel).ExecuteText(request).results
    assert (len(found.output.artifact), found.output.truncated) == (1, True)
    assert {result.error.code for result in others} == {grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]}
    assert noted.output.content.startswith("created memory ")
    assert most_bytes(server) - before < 64 * MIB
