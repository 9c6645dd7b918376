"""Tenants come, are suspended, and go: calls, streams, keys and files."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from mnemon.v1 import access_pb2, access_pb2_grpc, changes_pb2
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.tenant_file import TenantFile

from tests.support.access import bearer, guarded_server, make_key
from tests.support.command import run
from tests.support.databases import files_below
from tests.support.forks import start
from tests.support.issuers import SigningKey, trusting_server
from tests.support.server import Connection, eventually, reason, run_command, stream_end, until, whole_server


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command("tenants", *words, "--data-dir", str(folder))


async def done(folder: Path, *words: str) -> str:
    """What the command prints, while a server may be running."""
    ended = await asyncio.to_thread(command, folder, *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def client_of(connection: Connection, secret: str) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(connection.server.address), api_key=secret)


def watch(connection: Connection, secret: str) -> Any:
    return connection.changes.WatchChanges(changes_pb2.WatchChangesRequest(), metadata=bearer(secret))


async def refusal(client: mnemon.AsyncClient) -> str:
    try:
        await client.who_am_i()
    except mnemon.MnemonError as error:
        return type(error).__name__
    return ""


async def test_a_suspended_tenant_is_refused_with_the_reason_and_its_streams_end(tmp_path: Path) -> None:
    ada, bob = (make_key(tmp_path, "admin", tenant=tenant) for tenant in ("ada", "bob"))
    async with (
        guarded_server(tmp_path) as connection,
        client_of(connection, ada) as of_ada,
        client_of(connection, bob) as of_bob,
    ):
        await of_ada.documents.put("note", "Ada sits by the window.")
        watches = [watch(connection, secret) for secret in (ada, bob)]
        for each in watches:
            assert (await each.read()).HasField("started")
        await done(tmp_path, "suspend", "ada", "--reason", "The invoice of May is unpaid.")
        _, error = await stream_end(watches[0])
        assert (error.code(), reason(error)) == (grpc.StatusCode.PERMISSION_DENIED, "TENANT_SUSPENDED")
        with pytest.raises(mnemon.TenantSuspendedError, match="The invoice of May is unpaid"):
            await of_ada.documents.get("note")
        assert await refusal(of_bob) == ""
        assert not watches[1].done()
        watches[1].cancel()
        await done(tmp_path, "resume", "ada")

        async def is_served() -> bool:
            return not await refusal(of_ada)

        await eventually(is_served)
        assert (await of_ada.documents.get("note")).content == "Ada sits by the window."


async def test_a_deleted_tenant_leaves_no_key_and_no_file_and_its_id_is_free_again(tmp_path: Path) -> None:
    ada, bob = (make_key(tmp_path, "admin", tenant=tenant) for tenant in ("ada", "bob"))
    async with guarded_server(tmp_path) as connection:
        async with client_of(connection, ada) as of_ada, client_of(connection, bob) as of_bob:
            await of_ada.documents.put("note", "Ada sits by the window.")
            await of_bob.documents.put("note", "Bob sits by the door.")
            served = await asyncio.to_thread(command, tmp_path, "delete", "ada", "--yes")
            assert served.returncode == 1
            assert "suspend it, then delete it" in served.stderr
            assert await refusal(of_ada) == ""
            await done(tmp_path, "suspend", "ada", "--reason", "moved away")
            await done(tmp_path, "delete", "ada", "--yes")
            assert sorted(each.name for each in (tmp_path / "tenants").iterdir()) == ["LOCK", "bob", "default"]
            assert await refusal(of_ada) == "UnauthenticatedError"
            assert (await of_bob.documents.get("note")).content == "Bob sits by the door."
        assert {each["tenant"] for each in json.loads(await done(tmp_path, "list", "--json"))} == {"default", "bob"}
        again = await asyncio.to_thread(make_key, tmp_path, "admin", tenant="ada")
        async with client_of(connection, again) as of_ada:

            async def is_served() -> bool:
                return not await refusal(of_ada)

            await eventually(is_served)

            async def is_empty() -> bool:
                try:
                    return await of_ada.documents.count() == 0
                except mnemon.TenantSuspendedError:
                    return False

            await eventually(is_empty)
        assert b"Ada sits" not in _bytes(tmp_path)


async def test_a_token_does_not_bring_a_deleted_tenant_back(tmp_path: Path) -> None:
    key = SigningKey("theirs")
    operator = make_key(tmp_path / "data", "operator")
    token = key.sign(org="acme")
    trusting = partial(
        trusting_server,
        tmp_path,
        key,
        authentication=("api_key", "jwt"),
        tenant="",
        tenant_claim='"org"',
        creates_tenants="true",
    )
    vaults = tmp_path / "data" / "tenants"
    async with trusting() as connection, token_client(connection, token) as acme:
        await acme.documents.put("note", "Ada sits by the window.")
    async with trusting() as connection, client_of(connection, operator) as client:
        await client.tenants.suspend("acme", "moved away")
        await client.tenants.delete("acme")
        await until(lambda: not (vaults / "acme").exists())
    for _ in range(2):
        async with trusting() as connection, token_client(connection, token) as acme:
            with pytest.raises(mnemon.TenantSuspendedError, match="was deleted"):
                await acme.documents.put("note", "Ada is back.")
        assert not (vaults / "acme").exists()
    async with trusting() as connection, client_of(connection, operator) as client:
        await client.tenants.add("acme")
        async with token_client(connection, token) as acme:
            assert await acme.documents.count() == 0


def token_client(connection: Connection, token: str) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(connection.server.address), token=token)


def _bytes(folder: Path) -> bytes:
    return b"".join(content for _, content in files_below(folder))


@pytest.mark.parametrize("moment", ["marked", "moved"])
async def test_a_deletion_that_was_killed_is_finished_by_the_next_start(tmp_path: Path, moment: str) -> None:
    secret = make_key(tmp_path, "admin", tenant="ada")
    async with guarded_server(tmp_path) as connection, client_of(connection, secret) as client:
        await client.documents.put("note", "Ada sits by the window.")
    vaults = tmp_path / "tenants"
    for number in range(2_000):
        (vaults / "ada" / f"more-{number}").write_bytes(b"x")
    await done(tmp_path, "suspend", "ada", "--reason", "moved away")
    store = TenantFile(file := AccessFile(tmp_path))
    sign = partial((vaults / ".deleted-ada").exists) if moment == "moved" else partial(_is_marked, store)
    await asyncio.to_thread(_killed_deletion, tmp_path, sign)
    if store.get("ada") is not None:
        taken = await asyncio.to_thread(command, tmp_path, "create", "ada")
        assert taken.returncode == 1
        assert "still being removed" in taken.stderr
        async with guarded_server(tmp_path):
            await until(lambda: store.get("ada") is None)
    assert sorted(each.name for each in vaults.iterdir()) == ["LOCK", "default"]
    file.close()


def _killed_deletion(folder: Path, sign: Callable[[], bool]) -> None:
    """Kills the command once there is a sign that it works, unless it is done before."""
    words = ("tenants", "delete", "ada", "--yes", "--data-dir", str(folder))
    with Path(os.devnull).open("wb") as nothing:
        deleting = start(*words, environment=os.environ, out=nothing, err=nothing)
    while deleting.poll() is None and not sign():
        pass
    deleting.kill()
    deleting.wait()


def _is_marked(store: TenantFile) -> bool:
    found = store.get("ada")
    return found is None or found.deleted_at is not None


def test_the_command_makes_shows_changes_and_lists_tenants(tmp_path: Path) -> None:
    assert "acme  Acme Ltd." in command(tmp_path, "create", "acme", "--display-name", "Acme Ltd.").stdout
    assert "'acme' exists and can be updated" in command(tmp_path, "create", "acme").stderr
    command(tmp_path, "create", "small", "--quota", "records=0", "--quota", "disk_mib=1.5")
    assert json.loads(command(tmp_path, "show", "small").stdout)["quotas"] == {"records": 0, "disk_mib": 1.5}
    assert "the names are calls_per_second" in command(tmp_path, "create", "odd", "--quota", "size=1").stderr
    assert "must be 1 to 63 lower-case" in command(tmp_path, "create", "No Such Name").stderr
    assert "no tenant has the id" in command(tmp_path, "show", "nobody").stderr
    assert "acme  Acme" in command(tmp_path, "update", "acme", "--display-name", "Acme").stdout
    make_key(tmp_path, "admin", tenant="bob")
    listed = json.loads(command(tmp_path, "list", "--json").stdout)
    assert [(each["tenant"], each["display_name"]) for each in listed] == [("acme", "Acme"), ("small", ""), ("bob", "")]
    suspended = command(tmp_path, "suspend", "acme", "--reason", "unpaid").stdout
    assert "suspended since" in suspended
    assert "unpaid" in suspended
    shown = json.loads(command(tmp_path, "show", "acme").stdout)
    assert (shown["suspend_reason"], shown["disk_bytes"]) == ("unpaid", 0)
    assert "suspended" not in command(tmp_path, "resume", "acme").stdout
    assert "can only be suspended" in command(tmp_path, "delete", "default", "--yes").stderr


async def test_tenants_with_keys_or_a_vault_of_an_older_version_exist(tmp_path: Path) -> None:
    make_key(tmp_path, "admin", tenant="ada")
    async with guarded_server(tmp_path):
        pass
    (tmp_path / "tenants" / "bob").mkdir()
    async with guarded_server(tmp_path):
        listed = json.loads(await done(tmp_path, "list", "--json"))
    assert {each["tenant"] for each in listed} == {"ada", "bob", "default"}


async def test_without_authentication_everybody_reads_what_the_only_tenant_uses(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection, client_of(connection, "") as client:
        await client.documents.put("note", "Ada sits by the window.")
        used = await client.tenants.usage()
        assert used.records["document"] == 1
        assert used.disk_bytes > 10_000
        with pytest.raises(mnemon.FailedPreconditionError, match="no operators"):
            await client.tenants.add("acme")


async def test_an_operator_manages_tenants_over_grpc(tmp_path: Path) -> None:
    operator = make_key(tmp_path, "operator")
    async with guarded_server(tmp_path) as connection, client_of(connection, operator) as client:
        made = await client.tenants.add("acme", display_name="Acme Ltd.")
        assert (made.tenant, made.display_name, made.quotas) == ("acme", "Acme Ltd.", mnemon.Quotas())
        with pytest.raises(mnemon.TenantExistsError):
            await client.tenants.add("acme")
        secret = (await client.keys.add("the first", role="admin", tenant="acme")).secret
        assert [each.tenant async for each in client.tenants.list(page_size=1)] == ["default", "acme"]
        async with client_of(connection, secret) as acme:
            await acme.documents.put("note", "Ada sits by the window.")
            await acme.remember("Ada dislikes early flights.", type="preference", user="ada")
            used = await client.tenants.usage("acme")
            assert used.records["document"] == used.records["memory"] == 1
            assert used.disk_bytes > 10_000
            assert used.calls >= 2
            assert (await acme.tenants.usage()).records == (await acme.tenants.usage("acme")).records == used.records
            with pytest.raises(mnemon.PermissionDeniedError, match="only operators name a tenant"):
                await acme.tenants.usage("default")
            with pytest.raises(mnemon.TenantNotFoundError):
                await client.tenants.usage()
            await client.tenants.suspend("acme", "The invoice of May is unpaid.")
            with pytest.raises(mnemon.TenantSuspendedError, match="The invoice of May is unpaid"):
                await acme.documents.get("note")
            suspended = await client.tenants.update("acme", display_name="Acme")
            assert suspended.suspension is not None
            assert suspended.suspension.reason == "The invoice of May is unpaid."
            assert (await client.tenants.resume("acme")).suspension is None
            assert (await acme.documents.get("note")).content == "Ada sits by the window."
            with pytest.raises(mnemon.InvalidOperationError, match="suspend it, then delete it"):
                await client.tenants.delete("acme")
            await client.tenants.suspend("acme", "moved away")
            await client.tenants.delete("acme")
            assert await refusal(acme) in ("TenantSuspendedError", "UnauthenticatedError")

            async def is_gone() -> bool:
                return [each.tenant async for each in client.tenants.list()] == ["default"]

            await eventually(is_gone)
        assert sorted(each.name for each in (tmp_path / "tenants").iterdir()) == ["LOCK", "default"]
        for missing in (client.tenants.get("acme"), client.tenants.usage("acme"), client.tenants.delete("acme")):
            with pytest.raises(mnemon.TenantNotFoundError):
                await missing
        await client.tenants.delete("acme", allow_missing=True)
        with pytest.raises(mnemon.InvalidArgumentError, match=r"tenant\.suspension\.reason"):
            await client.tenants.suspend("default", " ")
        with pytest.raises(mnemon.InvalidArgumentError, match="update_mask"):
            await client.tenants.update("default")


async def test_a_tenant_has_quotas_of_its_own_at_once_and_after_a_restart(tmp_path: Path) -> None:
    operator, ada = make_key(tmp_path, "operator"), make_key(tmp_path, "admin", tenant="ada")
    quotas = mnemon.Quotas(calls_per_second=0.001, calls_burst=1)
    async with guarded_server(tmp_path) as connection, client_of(connection, operator) as client:
        assert (await client.tenants.update("ada", quotas=quotas)).quotas == quotas
        assert await calls_of(connection, ada) == [grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED]
        assert (await client.tenants.usage("ada")).refused_calls == 1
        with pytest.raises(mnemon.InvalidArgumentError, match=r"tenant\.quotas\.open_streams"):
            await client.tenants.update("ada", quotas=mnemon.Quotas(open_streams=-1))
    async with guarded_server(tmp_path) as connection, client_of(connection, operator) as client:
        assert await calls_of(connection, ada) == [grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED]
        await client.tenants.update("ada", quotas=mnemon.Quotas())
        assert await calls_of(connection, ada) == [grpc.StatusCode.OK] * 2


async def test_an_operator_limits_what_a_tenant_stores_and_embeds(tmp_path: Path) -> None:
    operator, ada = make_key(tmp_path, "operator"), make_key(tmp_path, "admin", tenant="ada")
    quotas = mnemon.Quotas(records=0, disk_mib=64.5, embedding_seconds_per_minute=30)
    async with (
        guarded_server(tmp_path, quotas_per_tenant=("open_streams=9",)) as connection,
        client_of(connection, operator) as client,
        client_of(connection, ada) as user,
    ):
        assert (await client.tenants.update("ada", quotas=quotas)).quotas == quotas
        await user.remember("Ada sits by the window.", type="fact", user="ada")

        async def is_full() -> bool:
            try:
                await user.remember("Ada sits by the door.", type="fact", user="ada")
            except mnemon.QuotaExceededError:
                return True
            return False

        await eventually(is_full)
        with pytest.raises(mnemon.QuotaExceededError, match="records"):
            await user.remember("Ada sits by the door.", type="fact", user="ada")
        usage = await client.tenants.usage("ada")
        assert usage.quotas == replace(quotas, open_streams=9)
        assert usage.embedding_seconds > 0
        assert usage.bytes_in_flight == 0
        await client.tenants.update("ada", quotas=mnemon.Quotas())
        await user.remember("Ada sits by the fire.", type="fact", user="ada")


async def calls_of(connection: Connection, secret: str) -> list[grpc.StatusCode]:
    """How two calls of this key end, one after the other."""
    stub = access_pb2_grpc.AccessServiceStub(connection.channel)  # type: ignore[no-untyped-call]
    calls = (stub.WhoAmI(access_pb2.WhoAmIRequest(), metadata=bearer(secret)) for _ in range(2))
    return [await call.code() for call in calls]


async def test_only_operators_see_tenants_and_without_authentication_there_are_none(tmp_path: Path) -> None:
    admin = make_key(tmp_path / "with", "admin")
    async with guarded_server(tmp_path / "with") as connection, client_of(connection, admin) as client:
        with pytest.raises(mnemon.PermissionDeniedError, match="needs the role operator"):
            await client.tenants.get("default")
    async with whole_server(tmp_path / "without") as connection, client_of(connection, "") as client:
        with pytest.raises(mnemon.FailedPreconditionError, match="no operators"):
            await client.tenants.get("default")


async def test_the_clients_command_manages_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path, "operator"))
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)

        async def says(*words: str) -> str:
            ended = await asyncio.to_thread(run, address, "tenants", *words)
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        assert "acme  Acme" in await says("create", "acme", "--display-name", "Acme", "--quotas", '{"records": 9}')
        assert json.loads(await says("show", "acme", "--json"))["quotas"]["records"] == 9
        assert "served" in await says("update", "acme", "--quotas", '{"open_streams": 7}')
        assert json.loads(await says("show", "acme", "--json"))["quotas"]["open_streams"] == 7
        assert "suspended: unpaid" in await says("suspend", "acme", "--reason", "unpaid")
        assert "served" in await says("resume", "acme")
        assert json.loads(await says("usage", "acme", "--json"))["records"]["document"] == 0
        for command in ("show", "usage"):
            lines = [re.split(r"  +", line.strip(), maxsplit=1) for line in (await says(command, "acme")).splitlines()]
            assert dict(lines)["quota open_streams"] == "7"
            assert "{" not in str(lines)
        assert "suspended" in await says("suspend", "acme", "--reason", "unpaid")
        assert "deleted" in await says("delete", "acme", "--yes")
        assert "default" in await says("list")
