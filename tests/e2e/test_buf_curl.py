"""What someone sees who debugs the server with `buf curl` and reflection."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ServerProcess, server_process

SERVICE = "mnemon.v1.KnowledgeStoreService"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("data"), "--knowledge-store-backend", "local") as running:
        yield running


def buf_curl(server: ServerProcess, path: str, *flags: str, data: dict[str, Any] | None = None) -> str:
    buf = shutil.which("buf", path=str(Path(sys.executable).parent))
    assert buf, "buf is one of the development tools; `make test` installs it"
    command = [buf, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *flags]
    command += ["--data", json.dumps(data)] if data is not None else []
    done = subprocess.run([*command, f"http://{server.address()}{path}"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("reflection", ["grpc-v1", "grpc-v1alpha"])
def test_it_lists_services_and_methods(server: ServerProcess, reflection: str) -> None:
    services = buf_curl(server, "", "--list-services", "--reflect-protocol", reflection).split()
    ours = ("Archive", "Bridge", "EpisodicMemory", "Fact", "Tool")
    expected = {SERVICE, "grpc.health.v1.Health", *(f"mnemon.v1.{name}Service" for name in ours)}
    assert expected <= set(services)
    methods = buf_curl(server, "", "--list-methods", "--reflect-protocol", reflection)
    assert f"{SERVICE}/SearchDocuments" in methods
    assert "mnemon.v1.EpisodicMemoryService/QueryWindow" in methods


def test_it_indexes_and_searches(server: ServerProcess) -> None:
    document = {
        "docId": "tea",
        "content": "Green tea is best at eighty degrees.",
        "metadata": {"hot": {"boolValue": True}},
    }
    indexed = json.loads(buf_curl(server, f"/{SERVICE}/IndexDocument", data={"document": document}))
    assert indexed["receipt"]["outcome"] == "WRITE_OUTCOME_CREATED"
    query = {"query": "green tea", "limit": 1, "filters": {"hot": {"boolValue": True}}}
    found = json.loads(buf_curl(server, f"/{SERVICE}/SearchDocuments", data=query))
    assert found["results"][0]["document"]["docId"] == "tea"
    assert found["diagnostics"]["exact"] is True


def test_it_records_an_event_and_asks_for_it(server: ServerProcess) -> None:
    service = "mnemon.v1.EpisodicMemoryService"
    event = {
        "scope": {"user": "ada"}, "eventType": "task", "content": "Ada must call the bank.", "importance": 0.9,
        "eventTime": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    recorded = json.loads(buf_curl(server, f"/{service}/RecordEvent", data={"event": event}))
    assert recorded["receipt"]["sequence"] == "1"
    query = {"range": {"startTime": "2026-01-31T00:00:00Z"}, "filter": {"scope": {"user": "ada"}}}
    [match] = json.loads(buf_curl(server, f"/{service}/QueryWindow", data=query))["results"]
    found = match["event"]
    assert (found["content"], found["eventTime"]) == (
        "Ada must call the bank.",
        "2026-01-31T12:00:00Z",
    )


def test_it_sets_a_metadata_key_exactly_as_written(server: ServerProcess) -> None:
    service = "mnemon.v1.MemoryService"
    one, two = {"intValue": "1"}, {"intValue": "2"}
    created = {"memory": {"content": "Ada likes tea.", "metadata": {"myKey": one, "other": one}}}
    memory_id = json.loads(buf_curl(server, f"/{service}/CreateMemory", data=created))["memory"]["memoryId"]
    change = {
        "memory": {"memoryId": memory_id, "isGlobal": True},
        "updateMask": "isGlobal",
        "setMetadata": {"myKey": two},
    }
    changed = json.loads(buf_curl(server, f"/{service}/UpdateMemory", data=change))["memory"]
    assert (changed["metadata"], changed["isGlobal"]) == ({"myKey": two, "other": one}, True)


def test_it_stores_a_fact_and_calls_a_tool_that_finds_it(server: ServerProcess) -> None:
    fact = {"namespace": ["user", "ada"], "key": "seat", "value": {"content": "Ada prefers window seats.", "rank": 5}}
    put = json.loads(buf_curl(server, "/mnemon.v1.FactService/PutFact", data={"fact": fact}))
    assert put["receipt"]["outcome"] == "WRITE_OUTCOME_CREATED"
    call = {
        "tool": "search_memory",
        "arguments": {"query": "window", "filter": {"rank": {"$gte": 5}}},
        "context": {"config": {"user_id": "ada"}},
    }
    output = json.loads(buf_curl(server, "/mnemon.v1.ToolService/CallTool", data=call))["output"]
    [found] = json.loads(output["content"])
    assert (found["key"], found["value"]) == ("seat", {"content": "Ada prefers window seats.", "rank": 5})


def test_an_error_names_the_field_and_the_reason(server: ServerProcess) -> None:
    answer = buf_curl(server, f"/{SERVICE}/IndexDocument", data={"document": {"docId": "x"}})
    assert "invalid_argument" in answer
    assert "document.content" in answer
    assert {detail["type"] for detail in json.loads(answer)["details"]} == {
        "google.rpc.ErrorInfo",
        "google.rpc.BadRequest",
    }
