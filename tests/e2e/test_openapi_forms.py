"""/openapi.json and the server agree on every JSON form of a value."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.test_openapi import DOCUMENT
from tests.support.access import guarded_server, make_key
from tests.support.described_api import DescribedApi
from tests.support.http_calls import JSON, http_client

LARGEST, TOO_LARGE = 2**63 - 1, 2**63
ID = "00000000-0000-4000-8000-000000000001"
TEXT = {"stringValue": "tea"}
VALUE = "{value}"
"""Stands for the value in a request."""

Requests = tuple[str, Any, tuple[Any, ...]]
EDGES: tuple[Requests, ...] = (
    (
        "MemoryService/CreateMemory",
        {"memory": {"content": "tea", "metadata": {"size": {"intValue": VALUE}}}},
        (
            1,
            LARGEST,
            TOO_LARGE,
            -TOO_LARGE,
            -TOO_LARGE - 1,
            None,
            True,
            1.5,
            "",
            "0",
            "01",
            " 1",
            f"{10**18}",
            f"{LARGEST}",
            f"{TOO_LARGE}",
            f"{-TOO_LARGE}",
            f"{-TOO_LARGE - 1}",
        ),
    ),
    (
        "MemoryService/CreateMemory",
        {"memory": {"content": "tea", "metadata": {"drink": VALUE}}},
        (None, "tea", {}, TEXT, {**TEXT, "intValue": None}, {**TEXT, "intValue": "1"}, {"intValue": None}),
    ),
    ("MemoryService/DeleteMemory", {"memoryId": ID, "expectedRevision": VALUE}, (f"{LARGEST}", "-1", None)),
    ("MemoryService/GetMemory", {"memoryId": VALUE}, (None, "", ID, 1)),
    (
        "MemoryService/UpdateMemory",
        {"memory": {"memoryId": ID, "content": "tea"}, "updateMask": VALUE},
        ("content", "decayPolicy,content", "scope.user", "Content", "content ", "a", "revision", ",", "", None),
    ),
    (
        "EpisodicMemoryService/RecordEvent",
        {"event": {"eventType": "tea", "scope": {"user": "ada"}, "eventTime": VALUE}},
        (
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.123456789Z",
            "2026-01-31T12:00:00.1234567890Z",
            "2026-01-31T12:00:00+23:59",
            "2026-01-31T12:00:00+24:00",
            "2026-01-31T12:00:00+0200",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00z",
            "2026-01-31T12:00:00",
            "2026-01-31 12:00:00Z",
            "2026-1-31T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-01-31",
            "",
            0,
            None,
        ),
    ),
    (
        "FactService/PutFact",
        {"fact": {"namespace": {"labels": ["tea"]}, "key": "size", "value": {}, "ttl": VALUE}},
        (
            "1s",
            "0.500s",
            "0.000001s",
            "3153600000s",
            "3153600001s",
            "1.1234567891s",
            "+1s",
            "1 s",
            "1.s",
            ".5s",
            "01s",
            "0s",
            "-1s",
            "1",
            1,
            "1e3s",
            "",
            None,
        ),
    ),
    (
        "AccessService/CreateKey",
        {"name": "a guest", "role": "ROLE_READER", "ttl": VALUE},
        ("0.5s", "1s", "3155760000s"),
    ),
    ("ChangeService/WatchChanges", {"heartbeatInterval": VALUE}, ("4s", "5s", "60s", "60.5s")),
    ("ChangeService/WatchChanges", {"cursor": VALUE}, ("", None)),
    ("ChangeService/WatchChanges", {"earliest": VALUE}, (True, False, None)),
    ("KnowledgeStoreService/DeleteDocuments", {"filters": VALUE}, (None, {})),
    ("SemanticMemoryService/DeleteSemanticMemories", {"memoryIds": ["tea"], "filter": VALUE}, (None, {})),
    ("BackupService/CreateBackup", {"baseManifest": VALUE}, ("YQ=", "====", "Y Q==", "a")),
)
"""Values at the edge of what is allowed, by the request that they are in."""
OTHER_FORMS: tuple[tuple[str, Any], ...] = (
    ("MemoryService/SearchMemories", {"query": "tea", "limit": "5"}),
    ("MemoryService/SearchMemories", {"query": "tea", "minScore": "0.5"}),
    ("MemoryService/SearchMemories", {"query": "tea", "mode": 1}),
    ("MemoryService/GetMemory", {"memory_id": ID}),
    ("MemoryService/DeleteMemory", {"memoryId": ID, "expectedRevision": "1e3"}),
)
"""Requests in forms of protobuf's JSON that the document allows in words alone."""


async def test_the_document_and_the_server_agree_on_every_form_of_a_value(tmp_path: Path) -> None:
    api = DescribedApi(json.loads(DOCUMENT.read_text("utf-8")))
    differences, verdicts = [], set()
    credential = f"Bearer {make_key(tmp_path, 'admin')}"
    async with guarded_server(tmp_path, http_listen="127.0.0.1:0") as server, http_client(server) as client:
        client.headers = httpx.Headers(
            {"authorization": credential, "content-type": JSON, "connect-timeout-ms": "20000"}
        )
        for method, form, values in EDGES:
            for value in values:
                request = json.loads(json.dumps(form).replace(f'"{VALUE}"', json.dumps(value)))
                is_refused = await _is_refused(client, method, request)
                complaints = api.complaints(_schema(method), request, closed=False)
                if bool(complaints) != is_refused:
                    differences.append((method, request, complaints))
                verdicts.add(is_refused)
        taken = [not await _is_refused(client, method, request) for method, request in OTHER_FORMS]
    assert differences == []
    assert verdicts == {True, False}
    assert all(taken)
    assert "**Other forms**" in api.document["info"]["description"]


def _schema(method: str) -> str:
    return f"/paths/~1mnemon.v1.{method.replace('/', '~1')}/post/requestBody/content/application~1json/schema"


async def _is_refused(client: httpx.AsyncClient, method: str, request: Any) -> bool:
    async with client.stream("POST", f"/mnemon.v1.{method}", json=request) as response:
        return response.status_code == 400 and json.loads(await response.aread())["code"] == "invalid_argument"
