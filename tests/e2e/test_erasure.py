"""An erasure leaves nothing of its subject in any file, and everything else as it was; its receipt can be verified."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw
import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from mnemon import AsyncClient
from mnemon.v1 import (
    archive_pb2,
    bridge_pb2,
    changes_pb2,
    common_pb2,
    conflicts_pb2,
    episodic_pb2,
    erase_pb2,
    facts_pb2,
    memory_pb2,
    semantic_pb2,
)
from mnemon_server.transport.server import GrpcServer

from tests.support.access import bearer, guarded_server
from tests.support.churn import make_tenants
from tests.support.databases import open_database
from tests.support.erasing import Planted, erase, found_in, is_signed, word
from tests.support.repository import ROOT
from tests.support.server import (
    Connection,
    ServerProcess,
    detail,
    eventually,
    run_command,
    stream_end,
    until,
    whole_server,
)
from tests.support.server_command import run

QUICK: dict[str, Any] = {
    "erasure_delay_s": 0.05,
    "timeline_segment_max_events": 4,
    "timeline_segment_max_age_s": 0.2,
}
LOCAL = ("--knowledge-store-backend", "local", "--erasure-delay-s", "0.05")
SEALING = ("--timeline-segment-max-events", "4")

REPLACED = {"text replaced", "text rewritten"}
"""Texts that no record has any more; how soon they leave the files is not the concern of these tests."""


@dataclass(frozen=True)
class Running(Connection):
    """A server, in this process or another one."""

    address: str = ""


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """A server in this process."""
    async with whole_server(folder, **{**QUICK, **settings}) as one:
        yield Running(one.server, one.channel, str(one.server.address))


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Running]:
    """A channel to a process."""
    address = await asyncio.to_thread(server.address)
    async with aio.insecure_channel(address) as channel:
        yield Running(cast("GrpcServer", None), channel, address)


async def exported(stubs: Running) -> list[dict[str, Any]]:
    """The records of a vault, as lines of an archive."""
    async with AsyncClient(stubs.address) as client:
        lines = [line async for line in client.archive.export()]
    return lines[1:-1]


def of_others(lines: list[dict[str, Any]], user: Planted) -> list[str]:
    texts = (json.dumps(line, sort_keys=True) for line in lines)
    return sorted(text for text in texts if user.name not in text and word(user.user, "key") not in text)


async def imported(stubs: Running, lines: list[dict[str, Any]]) -> list[str]:
    """The outcomes of an import."""
    async with AsyncClient(stubs.address) as client:
        return [str(result.outcome) async for result in client.archive.import_(lines, embed_anew=True)]


async def settled(folder: Path, stubs: Running, user: Planted) -> None:
    """Waits until the background work has reached everything: a segment, the words of events, a bridged statement."""

    async def is_everywhere() -> bool:
        files = {file for found in found_in(folder, user.traces()).values() for file in found}
        status = await stubs.episodic.GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest())
        where = semantic_pb2.SemanticMemoryFilter(scope=common_pb2.Scope(user=user.name))
        statements = await stubs.semantic.ListSemanticMemories(semantic_pb2.ListSemanticMemoriesRequest(filter=where))
        return (
            any(file.endswith(".segment") for file in files)
            and status.text_pending_count == 0
            and any(one.metadata for one in statements.memories)
        )

    await eventually(is_everywhere)


async def test_one_user_of_many_is_erased_from_every_file_and_an_archive_does_not_bring_them_back(
    tmp_path: Path,
) -> None:
    users = [Planted(f"user{number}") for number in range(4)]
    gone, other = users[1], users[2]
    async with running(tmp_path) as stubs:
        for user in users:
            await user.plant(stubs)
        for user in users:
            await settled(tmp_path, stubs, user)
        planted = found_in(tmp_path, gone.traces())
        assert gone.traces().keys() - planted.keys() <= REPLACED | {"rounded vector"}
        archive = await exported(stubs)
        before, kept = of_others(archive, gone), found_in(tmp_path, other.traces()).keys() - REPLACED

        counted = [each async for each in stubs.erasures.Erase(erase_pb2.EraseRequest(user=gone.name, dry_run=True))]
        assert found_in(tmp_path, gone.traces()).keys() == planted.keys()
        receipt = await erase(stubs, user=gone.name)

        assert found_in(tmp_path, gone.traces()) == {}
        assert (list(receipt.found_files), receipt.found_neighbours) == ([], 0)
        counts = {each.store: each.count for each in receipt.counts}
        assert counts == {each.store: each.count for each in counted[0].dry_run.counts} | {
            store: counts[store] for store in ("answer", "change", "unmarked")
        }
        assert {kind: counts[kind] for kind in ("document", "memory", "fact", "event")} == {
            "document": 1,
            "memory": 3,
            "fact": 1,
            "event": 4,
        }
        assert counts["change"] > 0 and counts["answer"] == 1
        assert of_others(await exported(stubs), gone) == before == of_others(archive, gone)
        assert found_in(tmp_path, other.traces()).keys() >= kept

        outcomes = await imported(stubs, archive)
        assert outcomes.count("erased") == len(archive) - len(before)
        assert set(outcomes) == {"erased", "unchanged"}
        assert found_in(tmp_path, gone.traces()) == {}
        key = (await stubs.erasures.GetErasureKey(erase_pb2.GetErasureKeyRequest())).public_key
        assert is_signed(receipt, key) and receipt.public_key == key
        receipt.text = receipt.text.replace('"event":4', '"event":2')
        assert not is_signed(receipt, key)


async def test_what_was_erased_does_not_come_back_with_an_older_backup(tmp_path: Path) -> None:
    gone, other = Planted("user1"), Planted("user2")
    data, backup = tmp_path / "data", tmp_path / "backup"
    async with running(data, backup_dir=tmp_path / "kept") as stubs, AsyncClient(stubs.address) as client:
        for user in (gone, other):
            await user.plant(stubs)
        for user in (gone, other):
            await settled(data, stubs, user)
        expected = of_others(await exported(stubs), gone)
        await client.backups.create(backup)
        await client.backups.create_on_server("monday")
        receipt = await erase(stubs, user=gone.name)
        [kept, _] = receipt.out_of_reach
        assert kept == f"the server's backup monday of {manifest_time(tmp_path / 'kept/default/monday')}"

    restored = run("restore", str(backup), "--data-dir", str(data), "--replace")
    assert restored.returncode == 0, restored.stderr
    assert found_in(data, gone.traces())
    async with running(data) as stubs:
        assert found_in(data, gone.traces()) == {}
        assert of_others(await exported(stubs), gone) == expected
        first, again = await receipts_of(stubs)
        assert (first.text, first.signature) == (receipt.text, receipt.signature)
        assert not again.found_files and '"kind":"tombstones"' in again.text
        outcome = await erase(stubs, user=other.name)
        assert not outcome.found_files


def manifest_time(backup: Path) -> str:
    return str(json.loads((backup / "manifest.json").read_bytes())["time"])


@contextmanager
def without_emptying_the_log(records: Path) -> Iterator[apsw.Connection]:
    """Reads as long as the block lasts, so that an erasure cannot end; yields a connection for further reads."""
    with closing(open_database(records)) as reader, closing(open_database(records)) as other:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM value").fetchone()
        yield other


async def test_a_restored_vault_that_is_killed_while_it_erases_again_serves_nothing_of_it(tmp_path: Path) -> None:
    gone = Planted("user1")
    data, backup = tmp_path / "data", tmp_path / "backup"
    async with running(data) as stubs, AsyncClient(stubs.address) as client:
        await gone.plant(stubs)
        await settled(data, stubs, gone)
        await client.backups.create(backup)
        await erase(stubs, user=gone.name)
    assert run("restore", str(backup), "--data-dir", str(data), "--replace").returncode == 0

    with without_emptying_the_log(data / "tenants/default/records.db") as records:
        server = ServerProcess(data, *LOCAL)

        async def has_begun() -> bool:
            return bool(records.execute("SELECT 1 FROM value WHERE key = 'erasure.job' AND text <> ''").fetchone())

        await eventually(has_begun)
        server.end()
    assert found_in(data, gone.traces())
    async with running(data) as stubs:
        lines = await exported(stubs)
        assert found_in(data, gone.traces()) == {}
        assert of_others(lines, gone) == sorted(json.dumps(line, sort_keys=True) for line in lines)
        [_, again] = await receipts_of(stubs)
        assert '"kind":"tombstones"' in again.text


async def receipts_of(stubs: Running) -> list[erase_pb2.ErasureReceipt]:
    return [*(await stubs.erasures.ListErasures(erase_pb2.ListErasuresRequest())).receipts]


async def come_to(phase: int, stream: AsyncIterable[erase_pb2.EraseResponse]) -> None:
    """Waits until an erasure has come to a phase, or to its end: a short one does not tell each."""
    async for message in stream:
        if message.progress.phase >= phase or message.HasField("receipt"):
            return


async def killed_while_erasing(server: ServerProcess, user: Planted, phase: int) -> None:
    """Asks for an erasure, and kills the server once it has come to a phase."""
    async with connected(server) as stubs:
        stream = stubs.erasures.Erase(erase_pb2.EraseRequest(user=user.name, request_id="erasure-1"))
        try:
            await come_to(phase, stream)
        finally:
            server.process.kill()
    await asyncio.to_thread(server.end)


async def test_an_erasure_goes_on_by_itself_after_kill_9(tmp_path: Path) -> None:
    user, other = Planted("user1"), Planted("user2")
    async with running(tmp_path) as stubs:
        await user.plant(stubs)
        await other.plant(stubs)
        await settled(tmp_path, stubs, user)
        kept = found_in(tmp_path, other.traces()).keys() - REPLACED
    await killed_while_erasing(ServerProcess(tmp_path, *LOCAL), user, erase_pb2.ERASE_PHASE_REMOVING)
    # On a busy machine, the erasure may have come to its end before the kill; the long form strikes at every step.
    async with running(tmp_path) as stubs:

        async def is_told() -> bool:
            return bool(await receipts_of(stubs))

        await eventually(is_told)
        assert found_in(tmp_path, user.traces()) == {}
        assert found_in(tmp_path, other.traces()).keys() >= kept
        [receipt] = await receipts_of(stubs)
        assert (list(receipt.found_files), receipt.found_neighbours) == ([], 0)
        again = await erase(stubs, user=user.name, request_id="erasure-1")
        assert again.replayed and again.text == receipt.text
        # The receipt is there a moment before.
        await until(lambda: not (tmp_path / "tenants" / "default" / "UNFINISHED").exists())


async def test_a_vault_stays_open_until_it_is_erased_though_the_caller_has_left_and_others_wait(tmp_path: Path) -> None:
    first, second = map(bearer, await make_tenants(tmp_path, 2))
    async with guarded_server(tmp_path, vaults_open_max=1, **QUICK) as one:
        await one.memories.CreateMemory(memory_of("ada", "tea"), metadata=first)
        stream = one.erasures.Erase(erase_pb2.EraseRequest(user="ada"), metadata=first)
        await come_to(erase_pb2.ERASE_PHASE_REMOVING, stream)
        stream.cancel()

        async def is_let_in() -> bool:
            call = one.memories.CreateMemory(memory_of("bob", "milk"), metadata=second)
            return bool(await call.code() is grpc.StatusCode.OK)

        await eventually(is_let_in)
        assert not (tmp_path / "tenants" / "tenant-0" / "UNFINISHED").exists()


async def test_a_vault_is_not_opened_again_and_again_for_an_erasure_that_was_killed_before_it_began(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "tenants" / "default" / "UNFINISHED"
    async with running(tmp_path) as stubs:
        await stubs.memories.CreateMemory(memory_of("ada", "tea"))
    mark.touch()
    async with running(tmp_path) as stubs:
        await until(lambda: not mark.exists())
        assert await receipts_of(stubs) == []


async def test_what_was_merged_from_an_erased_statement_falls_and_its_other_part_takes_its_place_again(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as stubs:
        ids = [
            await saved(stubs, text)
            for text in (f"Ada likes tea, says {word('one')}", f"Ada likes milk, says {word('two')}", "Ada has a dog")
        ]
        request = conflicts_pb2.MergeMemoriesRequest()
        request.first.memory_id, request.second.memory_id = ids[0], ids[1]
        merged = (await stubs.conflicts.MergeMemories(request)).memory
        assert word("one") in merged.content
        where = erase_pb2.EraseFilter(kind=archive_pb2.RECORD_KIND_SEMANTIC, scope=common_pb2.Scope(user="ada"))
        where.filter.condition.field = "content"
        where.filter.condition.comparator = common_pb2.COMPARATOR_CONTAINS
        where.filter.condition.values.add().string_value = word("one")
        receipt = await erase(stubs, filter=where)
        assert {each.store: each.count for each in receipt.counts}["semantic"] == 2
        listed = await stubs.semantic.ListSemanticMemories(semantic_pb2.ListSemanticMemoriesRequest())
        assert {one.memory_id for one in listed.memories} == {ids[1], ids[2]}
        assert found_in(tmp_path, {"one": word("one").encode(), "merged": merged.memory_id.encode()}) == {}
        assert found_in(tmp_path, {"two": word("two").encode()})


async def test_statements_made_from_erased_events_fall_although_the_bridge_only_demotes(tmp_path: Path) -> None:
    user = Planted("user1")
    async with running(tmp_path) as stubs:
        policy = bridge_pb2.RoutingPolicy(on_prune=bridge_pb2.PRUNE_ACTION_DEMOTE)
        await stubs.bridge.UpdateRoutingPolicy(
            bridge_pb2.UpdateRoutingPolicyRequest(policy=policy, update_mask={"paths": ["on_prune"]})
        )
        await user.plant(stubs)
        await settled(tmp_path, stubs, user)
        scope = common_pb2.Scope(user=user.name)
        await erase(stubs, filter=erase_pb2.EraseFilter(kind=archive_pb2.RECORD_KIND_EVENT, scope=scope))
        left = found_in(tmp_path, user.traces()).keys()
        assert not left & {"text bridged", "text event", "text context", "event id"}
        assert left >= {"text document", "text memory", "text fact", "text said", "user"}


async def test_a_namespace_is_erased_with_those_below_it(tmp_path: Path) -> None:
    async with running(tmp_path) as stubs:
        for labels, kind in (
            (["org", "acme"], "above"),
            (["org", "acme", "eu"], "below"),
            (["org", "acme2"], "beside"),
        ):
            request = facts_pb2.PutFactRequest()
            request.fact.namespace.extend(labels)
            request.fact.key = kind
            request.fact.value.update({"content": word(kind)})
            await stubs.facts.PutFact(request)
        archive = await exported(stubs)
        receipt = await erase(stubs, namespace=facts_pb2.FactNamespace(labels=["org", "acme"]))
        assert {each.store: each.count for each in receipt.counts}["fact"] == 2
        traces = {kind: word(kind).encode() for kind in ("above", "below", "beside")}
        assert found_in(tmp_path, traces).keys() == {"beside"}
        # What is stored under an erased name after the erasure is another record.
        request.fact.namespace[:] = ["org", "acme", "eu"]
        await stubs.facts.PutFact(request)
        assert sorted(await imported(stubs, archive)) == ["erased", "erased", "unchanged"]


async def test_watchers_are_told_and_nothing_in_the_feed_names_what_was_erased(tmp_path: Path) -> None:
    async with running(tmp_path) as stubs:
        await stubs.memories.CreateMemory(memory_of("ada", "one"))
        await stubs.memories.CreateMemory(memory_of("bob", "two"))
        await erase(stubs, user="ada")
        listed = (await stubs.changes.ListChanges(changes_pb2.ListChangesRequest())).changes
        assert [one.scope.user for one in listed] == ["bob", ""]
        assert listed[-1].type == changes_pb2.CHANGE_TYPE_RECORDS_ERASED


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "target"),
        ({"filter": erase_pb2.EraseFilter()}, "filter.kind"),
        ({"filter": erase_pb2.EraseFilter(kind=archive_pb2.RECORD_KIND_MEMORY)}, "filter"),
        ({"filter": erase_pb2.EraseFilter(kind=archive_pb2.RECORD_KIND_RULE, scope={"user": "ada"})}, "filter.kind"),
        ({"filter": erase_pb2.EraseFilter(kind=archive_pb2.RECORD_KIND_FACT, scope={"user": "ada"})}, "filter.scope"),
        ({"namespace": facts_pb2.FactNamespace(labels=[""])}, "namespace.labels[0]"),
    ],
)
async def test_a_request_that_could_mean_too_much_is_refused(
    tmp_path: Path, request_: dict[str, Any], field: str
) -> None:
    async with running(tmp_path) as stubs:
        await stubs.memories.CreateMemory(memory_of("ada", "one"))
        _, error = await stream_end(stubs.erasures.Erase(erase_pb2.EraseRequest(**request_)))
        violations = detail(error, error_details_pb2.BadRequest).field_violations
        assert (error.code(), [one.field for one in violations]) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
        counted = await stubs.memories.CountMemories(memory_pb2.CountMemoriesRequest())
        assert counted.count == 1


async def test_the_program_of_the_documentation_verifies_a_receipt_with_the_published_key(tmp_path: Path) -> None:
    program = (ROOT / "server" / "ERASURE.md").read_text().split("```python\n")[1].split("```")[0]
    file = tmp_path / "receipt.json"
    async with running(tmp_path / "data") as stubs:
        receipt = await erase(stubs, user="ada")
        published = await asyncio.to_thread(run_command, "erasure-key", "--data-dir", str(tmp_path / "data"))
        assert published.stdout.strip() == receipt.public_key.hex()
        for text, is_valid in ((receipt.text, True), (receipt.text.replace('"files":', '"files":1'), False)):
            values = {"receipt": text, "signature": receipt.signature.hex(), "public_key": receipt.public_key.hex()}
            file.write_text(json.dumps(values))
            command = [sys.executable, "-c", program, str(file), published.stdout.strip()]
            ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            assert (ran.returncode == 0, "still in: no file" in ran.stdout) == (is_valid, is_valid), ran.stderr


async def test_a_request_id_of_another_erasure_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as stubs:
        await erase(stubs, user="ada", request_id="r")
        _, error = await stream_end(stubs.erasures.Erase(erase_pb2.EraseRequest(user="bob", request_id="r")))
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS


def memory_of(user: str, text: str) -> memory_pb2.CreateMemoryRequest:
    """A request for a memory of a user."""
    request = memory_pb2.CreateMemoryRequest()
    request.memory.scope.user, request.memory.content = user, text
    return request


async def saved(stubs: Running, text: str) -> str:
    """The id of a new statement about Ada."""
    request = semantic_pb2.SaveSemanticMemoryRequest()
    request.memory.scope.user, request.memory.content = "ada", text
    return str((await stubs.semantic.SaveSemanticMemory(request)).memory.memory_id)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
async def test_one_of_fifty_users_is_erased_through_kills_at_every_moment(tmp_path: Path) -> None:
    users = [Planted(f"user{number}") for number in range(50)]
    server = ServerProcess(tmp_path, *SEALING)
    async with connected(server) as stubs:
        for user in users:
            await user.plant(stubs)
        await settled(tmp_path, stubs, users[0])
        archive = await exported(stubs)
    for number, delay_s in enumerate((0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)):
        user = users[number]
        async with connected(server) as stubs:
            stream = stubs.erasures.Erase(erase_pb2.EraseRequest(user=user.name))
            await stream.read()
            await asyncio.sleep(delay_s)
            server.process.kill()
        await asyncio.to_thread(server.end)
        server = ServerProcess(tmp_path, *SEALING)
        async with connected(server) as stubs:
            # Nothing at all, if it was killed before it had begun.
            if not (tmp_path / "tenants" / "default" / "UNFINISHED").exists() and not await receipts_of(stubs):
                assert (await imported(stubs, archive)).count("erased") == 0

            async def is_told(stubs: Running = stubs) -> bool:
                return not (tmp_path / "tenants" / "default" / "UNFINISHED").exists()

            await eventually(is_told)
            await erase(stubs, user=user.name)
            assert found_in(tmp_path, user.traces()) == {}
    async with connected(server) as stubs:
        for user in users[:8]:
            assert found_in(tmp_path, user.traces()) == {}
        lines = await exported(stubs)
        assert {json.dumps(line, sort_keys=True) for line in lines} <= {
            json.dumps(line, sort_keys=True) for line in archive
        }
        assert set(await imported(stubs, archive)) == {"erased", "unchanged"}
        for user in users[:8]:
            assert found_in(tmp_path, user.traces()) == {}
    server.end()
