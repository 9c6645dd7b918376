"""What /openapi.json says is what the server takes and gives."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from mnemon_server import __version__
from mnemon_server.commands.isolation.calls import filled
from mnemon_server.commands.isolation.probes import OWN, PLANTED, READS, WRITES, Probe

from tests.support.access import guarded_server, make_key
from tests.support.described_api import DescribedApi
from tests.support.http_calls import JSON, http_client, path_of
from tests.support.repository import ROOT
from tests.support.rpcs import SERVED_BY_OTHERS, Rpc, rpcs
from tests.support.server import whole_server

HTTP = {"http_listen": "127.0.0.1:0"}
DOCUMENT = ROOT / "server/mnemon_server/transport/http/pages/openapi.json"
CALLABLE = [rpc for rpc in rpcs() if not rpc.method.client_streaming]
RECORDS = ("document", "memory", "later", "last", "fact", "event", "statement", "merged", "second", "rule")
WORDS = ("label", "user", "secret", "request", "conversation")
FADING, SUSPENDED = "00000000-0000-4000-8000-000000000001", {"tenant": "guests", "suspension": {"reason": "a test"}}
ALSO = (
    Probe(
        "MemoryService/CreateMemory",
        ({"memory": {"memoryId": FADING, "content": "fades", "decayPolicy": "DECAY_POLICY_REINFORCEABLE"}},),
    ),
    Probe("MemoryService/ReinforceMemory", ({"memoryId": FADING},)),
    Probe(
        "SemanticMemoryService/SaveSemanticMemory",
        ({"memory": {"content": "An owl keeps the boat.", "scope": {"user": "{own_user}"}}},),
        keeps="{owl}",
    ),
    Probe(
        "ConflictService/MergeMemories",
        ({"first": {"memoryId": "{own_statement}"}, "second": {"memoryId": "{owl}"}},),
        keeps="{kept}",
    ),
    Probe("ConflictService/UnmergeMemory", ({"memoryId": "{kept}"},)),
)
AFTER = (
    Probe("TenantService/UpdateTenant", ({"tenant": SUSPENDED, "updateMask": "suspension"},)),
    Probe("TenantService/DeleteTenant", ({"tenant": "guests"},)),
)
NOT_ANSWERED = {"KnowledgeStoreService/RebuildIndex"}
"""Only an index of Chroma can be rebuilt."""
DEADLINE = {"connect-timeout-ms": "300"}


@pytest.fixture(scope="module")
def api() -> DescribedApi:
    return DescribedApi(json.loads(DOCUMENT.read_text("utf-8")))


class Caller:
    """Calls methods as JSON, and holds what comes back against the document."""

    def __init__(self, api: DescribedApi, client: httpx.AsyncClient, *credentials: str) -> None:
        self._api, self._client, self._credentials = api, client, credentials
        self.answered: set[str] = set()

    async def call(self, rpc: Rpc, request: Any, *, until: str = "", **headers: str) -> Any:
        """The last message; None if the call failed with every credential."""
        for credential in self._credentials or ("",):
            who = {"authorization": f"Bearer {credential}"} if credential else {}
            answer = await self._call(rpc, request, until, {**who, **headers})
            if answer is not None:
                return answer
        return None

    async def _call(self, rpc: Rpc, request: Any, until: str, headers: dict[str, str]) -> Any:
        headers = {"content-type": JSON, **headers}
        async with self._client.stream("POST", path_of(rpc), json=request, headers=headers) as response:
            if response.status_code != 200:
                error = json.loads(await response.aread())
                kind = "ClientError" if response.status_code < 500 else "ServerError"
                self._holds(f"/components/responses/{kind}/content/application~1json/schema", error, rpc)
                return None
            form = response.headers["content-type"]
            message = None
            async for line in response.aiter_lines():
                message = json.loads(line)
                self._holds(f"{_pointer(rpc)}/responses/200/content/{form.replace('/', '~1')}/schema", message, rpc)
                if until and until in line:
                    break
            self.answered.add(rpc.name)
            return message

    def _holds(self, pointer: str, value: Any, rpc: Rpc) -> None:
        assert self._api.complaints(pointer, value) == [], (rpc.name, value)


def _pointer(rpc: Rpc) -> str:
    return f"/paths/{path_of(rpc).replace('/', '~1')}/post"


def test_the_document_has_every_method(api: DescribedApi) -> None:
    assert {path_of(rpc) for rpc in CALLABLE} == {
        path for path, each in api.document["paths"].items() if "post" in each
    }
    tags = {tag["name"]: tag["description"] for tag in api.document["tags"]}
    for rpc in rpcs():
        if rpc.method.client_streaming:
            assert f"`{rpc.method.name}`" in tags[rpc.method.containing_service.name].rpartition("Over gRPC alone")[2]


def test_everything_in_the_document_is_described(api: DescribedApi) -> None:
    schemas = api.document["components"]["schemas"].items()
    assert [name for name, schema in schemas if not schema.get("description")] == []
    fields = [(name, key, each) for name, schema in schemas for key, each in schema.get("properties", {}).items()]
    undescribed = [(name, key) for name, key, each in fields if not each.get("description") and "$ref" not in each]
    assert len(fields) > 800 and undescribed == []


async def test_answers_of_every_method_are_as_the_document_says(tmp_path: Path, api: DescribedApi) -> None:
    admin, operator = make_key(tmp_path, "admin"), make_key(tmp_path, "operator")
    methods = {rpc.name: rpc for rpc in CALLABLE}
    async with guarded_server(tmp_path, **HTTP) as server, http_client(server) as client:
        caller = Caller(api, client, admin, operator)
        made = await caller.call(methods["AccessService/CreateKey"], {"name": "a guest", "role": "ROLE_READER"})
        now = datetime.now(UTC).isoformat()
        names = {"now": now, "tenant": "guests", "key": made["key"]["keyId"], "change_cursor": "none"}
        for prefix in ("", "own_"):
            names |= {prefix + word: f"{prefix}{word}" for word in WORDS}
            names |= {prefix + name: f"00000000-0000-4000-8000-{hash(prefix + name) % 10**12:012}" for name in RECORDS}
        await caller.call(methods["TenantService/CreateTenant"], {"tenant": "guests"})
        await _restore_each(caller, methods)
        for probe in (*PLANTED, *OWN, *ALSO, *READS, *WRITES, *AFTER):
            if probe.method in methods:
                names |= await _tried(api, caller, methods[probe.method], probe, names)
    assert set(methods) - caller.answered == NOT_ANSWERED


_ID = "00000000-0000-4000-8000-000000000002"
RESTORED = (
    ("KnowledgeStoreService", "Document", {"docId": "past"}, "IndexDocument", {"document": {"docId": "past"}}),
    ("MemoryService", "Memory", {"memoryId": _ID}, "CreateMemory", {"memory": {"memoryId": _ID}}),
    ("FactService", "Fact", {"namespace": ["past"], "key": "past"}, "PutFact", {"fact": {}}),
    ("SemanticMemoryService", "SemanticMemory", {}, "SaveSemanticMemory", {"memory": {"scope": {"user": "past"}}}),
)
"""Of each kind with versions: the service and the noun, the name of a record, and how it is stored."""


async def _restore_each(caller: Caller, methods: dict[str, Rpc]) -> None:
    """Restores a version of a deleted record of each kind."""
    for service, noun, name, store, request in RESTORED:
        [part] = request
        made = {**name, "value": {"content": "past"}} if noun == "Fact" else {**request[part], "content": "past"}
        answer = await caller.call(methods[f"{service}/{store}"], {part: made})
        named, delete = name or {"memoryId": answer["memory"]["memoryId"]}, f"{service}/Delete{noun}"
        if name:
            await caller.call(methods[delete], named)
        else:
            await caller.call(methods[f"{service}/DeleteSemanticMemories"], {"memoryIds": [named["memoryId"]]})
        found = await caller.call(methods[f"{service}/List{noun}Versions"], named)
        chosen = {**named, "versionId": found["versions"][0]["version"]["versionId"]}
        assert await caller.call(methods[f"{service}/Restore{noun}Version"], chosen) is not None


async def _tried(api: DescribedApi, caller: Caller, rpc: Rpc, probe: Probe, names: dict[str, str]) -> dict[str, str]:
    """Makes a call; returns the names that it gave to what later calls need."""
    if rpc.name == "MemoryService/ListMemories" and "memory_page" not in names:
        first = await caller.call(rpc, {"pageSize": 1})
        names = {**names, "memory_page": first["nextPageToken"]}
    if rpc.name == "ChangeService/ListChanges":
        names = {**names, "change_cursor": (await caller.call(rpc, {}))["cursor"]}
    request = filled(probe.messages[0], names)
    assert api.complaints(f"{_pointer(rpc)}/requestBody/content/application~1json/schema", request) == [], rpc.name
    answer = await caller.call(rpc, request, until=filled(probe.until, names))
    return {**names, **probe.kept(answer)}


async def test_the_form_of_every_method_holds_a_request_that_the_server_takes(
    tmp_path: Path, api: DescribedApi
) -> None:
    credentials = make_key(tmp_path, "admin"), make_key(tmp_path, "operator")
    refused = []
    async with guarded_server(tmp_path, **HTTP) as server, http_client(server) as client:
        for rpc in CALLABLE:
            content = api.operation(path_of(rpc))["requestBody"]["content"][JSON]
            headers = {"authorization": f"Bearer {credentials[rpc.name.startswith('Tenant')]}", "content-type": JSON}
            async with client.stream(
                "POST", path_of(rpc), json=content["example"], headers={**headers, **DEADLINE}
            ) as response:
                # What it names may be missing; what it says must be right.
                if response.status_code == 400 and json.loads(await response.aread())["code"] == "invalid_argument":
                    refused.append((rpc.name, json.loads(await response.aread())["message"]))
    assert refused == [], refused


async def test_a_value_beyond_a_limit_of_the_document_is_refused(tmp_path: Path, api: DescribedApi) -> None:
    credentials = make_key(tmp_path, "admin"), make_key(tmp_path, "operator")
    taken, checked = [], 0
    async with guarded_server(tmp_path, **HTTP) as server, http_client(server) as client:
        for rpc in CALLABLE:
            content = api.operation(path_of(rpc))["requestBody"]["content"][JSON]
            bearer = f"Bearer {credentials[rpc.name.startswith('Tenant')]}"
            headers = {"authorization": bearer, "connect-timeout-ms": "10000"}
            for name, schema in api.resolved(content["schema"])["properties"].items():
                for value in _beyond(schema):
                    request = {**content["example"], name: value}
                    assert api.complaints(f"{_pointer(rpc)}/requestBody/content/application~1json/schema", request)
                    error = (await client.post(path_of(rpc), json=request, headers=headers)).json()
                    if name not in [_camel(each["field"]) for each in _violations(error)]:
                        taken.append((rpc.name, name, value, error))
                    checked += 1
    assert taken == [], [each[:3] for each in taken]
    assert checked > 120


def _beyond(schema: Any) -> Iterator[Any]:
    """Values just outside of the limits of a number or a text."""
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)


async def test_a_method_that_changes_nothing_is_a_get_with_the_same_request(tmp_path: Path, api: DescribedApi) -> None:
    gets = {path: each["get"] for path, each in api.document["paths"].items() if {"get", "post"} <= each.keys()}
    assert gets.keys() == {path_of(rpc) for rpc in CALLABLE if rpc.method.GetOptions().idempotency_level == 1}
    path = "/mnemon.v1.FactService/ListNamespaces"
    post, (message,) = api.operation(path), [each for each in gets[path]["parameters"] if each.get("name") == "message"]
    assert message["content"] == post["requestBody"]["content"]
    async with whole_server(tmp_path, **HTTP) as server, http_client(server) as client:
        query = {"encoding": "json", "message": json.dumps(post["requestBody"]["content"][JSON]["example"])}
        assert (await client.get(path, params=query)).status_code == 200


def test_requests_within_requests_are_closed_and_answers_are_open(api: DescribedApi) -> None:
    memory = {"content": "Ada likes tea.", "colour": "green"}
    asked = api.complaints("/components/schemas/CreateMemoryRequest", {"memory": memory}, closed=False)
    assert "colour" in " ".join(asked)
    assert api.complaints("/components/schemas/Memory", memory, closed=False) == []


async def test_what_the_document_requires_is_required(tmp_path: Path, api: DescribedApi) -> None:
    checked = 0
    async with whole_server(tmp_path, **HTTP) as server, http_client(server) as client:
        for rpc in CALLABLE:
            schema = api.operation(path_of(rpc))["requestBody"]["content"][JSON]["schema"]
            required = api.resolved(schema).get("required", [])
            missing, request = set(required), {}
            while missing:
                error = (await client.post(path_of(rpc), json=request)).json()
                if error["code"] in ("failed_precondition", "not_found"):
                    break
                named = {_camel(each["field"].partition(".")[0]) for each in _violations(error)} & missing
                assert named, (rpc.name, missing, error)
                missing -= named
                checked += len(named)
                fields = api.resolved(schema)["properties"]
                request |= {name: {} if "$ref" in fields[name] else "x" for name in named}
    assert checked > 20


async def test_a_field_that_the_document_does_not_have_is_refused_as_it_says(tmp_path: Path, api: DescribedApi) -> None:
    request = {"query": "tea", "queryText": "tea"}
    pointer = "/components/schemas/SearchMemoriesRequest"
    assert "queryText" in " ".join(api.complaints(pointer, request, closed=False))
    async with whole_server(tmp_path, **HTTP) as server, http_client(server) as client:
        refused = (await client.post("/mnemon.v1.MemoryService/SearchMemories", json=request)).json()
    assert api.complaints("/components/schemas/Error", refused) == []
    assert _violations(refused)[0]["field"] == "queryText"


@pytest.fixture(name="served")
async def _served(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with whole_server(tmp_path, **HTTP) as server, http_client(server) as client:
        yield client


async def test_the_server_shows_the_document_and_a_page_that_asks_no_other_host(served: httpx.AsyncClient) -> None:
    document = await served.get("/openapi.json")
    assert document.headers["content-type"] == "application/json"
    assert document.content == DOCUMENT.read_bytes()
    page = await served.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for name, kind in (("docs.js", "text/javascript"), ("docs.css", "text/css")):
        part = await served.get(f"/{name}")
        assert name in page.text and part.headers["content-type"].startswith(kind)
        assert "://" not in page.text + part.text


async def test_the_front_page_links_to_every_other_one(served: httpx.AsyncClient) -> None:
    front = await served.get("/")
    assert front.headers["content-type"].startswith("text/html") and f"Mnemon {__version__}" in front.text
    links = re.findall('<a href="([^"]+)"', front.text)
    assert links == ["docs", "openapi.json", "readyz", "healthz"]
    assert {(await served.get(f"/{link}")).status_code for link in links} <= {200, 503}


def test_services_are_in_the_order_of_the_readme(api: DescribedApi) -> None:
    told = re.findall(r"^\| `mnemon\.v1\.(\w+)`", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert [tag["name"] for tag in api.document["tags"]] == [name for name in told if name not in SERVED_BY_OTHERS]


async def test_the_pages_are_shown_where_reflection_is(tmp_path: Path) -> None:
    async with whole_server(tmp_path, **HTTP, reflection=False) as server, http_client(server) as client:
        assert {(await client.get(page)).status_code for page in ("/docs", "/docs.js", "/openapi.json")} == {404}
        assert (await client.get("/healthz")).status_code == 200
        front = (await client.get("/")).text
    assert "readyz" in front and "docs" not in front and __version__ not in front


def _violations(error: Any) -> list[Any]:
    return [each for detail in error.get("details", ()) for each in detail["debug"].get("fieldViolations", ())]


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)
