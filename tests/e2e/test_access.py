"""Who may call: every method, with every kind of credential, before its request is read."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from grpc import aio
from mnemon.v1 import access_pb2 as pb
from mnemon.v1 import access_pb2_grpc, changes_pb2, memory_pb2
from mnemon_server.domain.access import Permission, Role
from mnemon_server.transport.roles import permissions

from tests.support.access import (
    bearer,
    every_event_logged,
    guarded_server,
    key_id,
    make_key,
    methods,
    open_call,
    path_of,
)
from tests.support.command import Done, run
from tests.support.server import (
    WAIT_S,
    Connection,
    eventually,
    failure_of,
    reason,
    run_command,
    stream_end,
    until,
    whole_server,
)
from tests.support.server_command import run as run_on_folder

METHODS = list(methods())
ROLE_NAMES = ("reader", "writer", "admin", "operator")


@cache
def permissions_of_all() -> Mapping[str, Permission]:
    """What each method requires. Not a constant: where it cannot be told, tests must fail, not their import."""
    return permissions({method.containing_service for method in METHODS})


def access_of(connection: Connection) -> Any:
    return access_pb2_grpc.AccessServiceStub(connection.channel)


async def test_every_method_refuses_a_caller_without_a_valid_key_before_it_reads_the_request(tmp_path: Path) -> None:
    valid = make_key(tmp_path, "admin")
    revoked = make_key(tmp_path, "admin")
    assert run_command("keys", "revoke", key_id(revoked), "--data-dir", str(tmp_path)).returncode == 0
    expired = make_key(tmp_path, "admin", "--ttl-days", str(1 / 86_400))
    wrong = valid[:-4] + ("AAAA" if not valid.endswith("AAAA") else "BBBB")
    async with guarded_server(tmp_path) as connection:
        who = access_of(connection)

        async def has_expired() -> bool:
            answer = who.WhoAmI(pb.WhoAmIRequest(), metadata=bearer(expired))
            return await answer.code() is grpc.StatusCode.UNAUTHENTICATED

        await eventually(has_expired)
        for secret in ("", wrong, revoked, expired, "mn_", "a" * 4000):
            ended = [
                asyncio.wait_for(open_call(connection.channel, method, secret).code(), WAIT_S) for method in METHODS
            ]
            assert set(await asyncio.gather(*ended)) == {grpc.StatusCode.UNAUTHENTICATED}, secret[:20]


@pytest.mark.parametrize("role", ROLE_NAMES)
async def test_every_method_refuses_a_lesser_role_before_it_reads_the_request(tmp_path: Path, role: str) -> None:
    secret = make_key(tmp_path, role)
    refused = [method for method in METHODS if not permissions_of_all()[path_of(method)].allows(Role[role.upper()])]
    async with guarded_server(tmp_path) as connection:
        ended = [asyncio.wait_for(open_call(connection.channel, each, secret).code(), WAIT_S) for each in refused]
        assert set(await asyncio.gather(*ended)) <= {grpc.StatusCode.PERMISSION_DENIED}
        for method in METHODS:
            if method not in refused:
                call = open_call(connection.channel, method, secret)
                await call.done_writing()
                code = await asyncio.wait_for(call.code(), WAIT_S)
                assert code not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED), (
                    method.full_name
                )


def test_reading_needs_no_more_than_a_reader_and_writing_no_less_than_a_writer() -> None:
    for method in METHODS:
        reads = method.GetOptions().idempotency_level == 1
        role = permissions_of_all()[path_of(method)].role
        assert (role is Role.READER) <= reads, method.full_name
        assert reads <= (role is not Role.WRITER), method.full_name


def test_operators_manage_tenants_and_keys_and_have_no_other_method() -> None:
    keys = {"CreateKey", "ListKeys", "RotateKey", "RevokeKey", "WhoAmI"}
    tenants = {"CreateTenant", "GetTenant", "ListTenants", "UpdateTenant", "DeleteTenant", "GetUsage"}
    open_to = {method.name for method in METHODS if permissions_of_all()[path_of(method)].allows(Role.OPERATOR)}
    assert open_to == keys | tenants
    for method in METHODS:
        if method.name in tenants - {"GetUsage"}:
            assert not any(
                permissions_of_all()[path_of(method)].allows(role) for role in (Role.READER, Role.WRITER, Role.ADMIN)
            )


async def test_the_error_says_what_is_missing_and_never_what_was_sent(tmp_path: Path) -> None:
    reader = make_key(tmp_path, "reader")
    async with guarded_server(tmp_path) as connection:
        create = connection.memories.CreateMemory
        missing = await failure_of(create(memory_pb2.CreateMemoryRequest()))
        wrong = await failure_of(create(memory_pb2.CreateMemoryRequest(), metadata=bearer(reader[:-1])))
        lesser = await failure_of(create(memory_pb2.CreateMemoryRequest(), metadata=bearer(reader)))
        assert (missing.code(), reason(missing)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        assert "authorization: Bearer" in str(missing.details())
        assert reader[:-1] not in str(wrong.details())
        assert (lesser.code(), reason(lesser)) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
        assert "writer" in str(lesser.details())


async def test_two_tenants_share_nothing(tmp_path: Path) -> None:
    ada, bob = (make_key(tmp_path, "admin", tenant=tenant) for tenant in ("ada", "bob"))
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)
        async with (
            mnemon.AsyncClient(address, api_key=ada) as of_ada,
            mnemon.AsyncClient(address, api_key=bob) as of_bob,
        ):
            before = await everything(of_bob)
            await of_ada.documents.put("note", "Ada sits by the window.")
            memory = await of_ada.remember("Ada dislikes early flights.", type="preference", user="ada")
            await of_ada.semantic.add("Ada lives in Berlin.", user="ada")
            event = await of_ada.timeline.add("conversation", "Ada asked for the train.", user="ada")
            await of_ada.facts.put(("ada",), "seat", {"row": 12})
            assert await everything(of_bob) == before
            for read in (
                of_bob.documents.get("note"),
                of_bob.memories.get(memory.memory_id),
                of_bob.timeline.get(event.event_id),
                of_bob.facts.get(("ada",), "seat"),
            ):
                with pytest.raises(mnemon.NotFoundError):
                    await read
            assert (await of_ada.documents.get("note")).content == "Ada sits by the window."
            assert {(await each.who_am_i()).tenant for each in (of_ada, of_bob)} == {"ada", "bob"}
            assert (await of_ada.server_info()).vault_id != (await of_bob.server_info()).vault_id


async def everything(client: mnemon.AsyncClient) -> list[Any]:
    """What a client finds of all that there is."""
    return [
        (await client.documents.search("Where does Ada sit?")).results,
        (await client.recall("Ada flights")).results,
        (await client.semantic.search("Ada Berlin", user="ada")).results,
        [each async for each in client.documents.list()],
        [each async for each in client.memories.list()],
        [each async for each in client.facts.list(subtree=True)],
        (await client.changes.list_page()).changes,
        await client.documents.count(),
        await client.memories.count(),
        [each async for each in client.keys.list()][1:],
    ]


async def test_open_streams_end_when_their_key_is_revoked_or_their_secret_is_replaced(tmp_path: Path) -> None:
    revoked, replaced, kept = (make_key(tmp_path, "writer") for _ in range(3))
    async with guarded_server(tmp_path) as connection:
        watches = [watch(connection, secret) for secret in (revoked, replaced, kept)]
        bulk = connection.episodic.BulkRecordEvents(metadata=bearer(revoked))
        for each in watches:
            assert (await each.read()).HasField("started")
        await until(lambda: connection.server.open_streams == 4)
        for command in (("revoke", key_id(revoked)), ("rotate", key_id(replaced), "--overlap-hours", "0")):
            assert run_command("keys", *command, "--data-dir", str(tmp_path)).returncode == 0
        for call in (*watches[:2], bulk):
            _, error = await stream_end(call)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        assert await is_valid(connection, kept)
        assert not watches[2].done()
        watches[2].cancel()
        await until(lambda: connection.server.open_streams == 0)


def watch(connection: Connection, secret: str) -> Any:
    request = changes_pb2.WatchChangesRequest()
    return connection.changes.WatchChanges(request, metadata=bearer(secret))


async def test_after_a_rotation_both_secrets_are_valid_until_the_overlap_ends(tmp_path: Path) -> None:
    first = make_key(tmp_path, "admin")
    async with guarded_server(tmp_path) as connection, client_of(connection, first) as client:
        second = (await client.keys.rotate(key_id(first))).secret
        assert await is_valid(connection, first)
        assert await is_valid(connection, second)
        async with client_of(connection, second) as renewed:
            third = (await renewed.keys.rotate(key_id(first), overlap=timedelta(0))).secret
        assert [await is_valid(connection, each) for each in (first, second, third)] == [False, False, True]


async def is_valid(connection: Connection, secret: str) -> bool:
    call = access_of(connection).WhoAmI(pb.WhoAmIRequest(), metadata=bearer(secret))
    return await call.code() is grpc.StatusCode.OK


async def test_an_admin_manages_the_keys_of_its_own_tenant_alone(tmp_path: Path) -> None:
    ada, bob = (make_key(tmp_path, "admin", tenant=tenant) for tenant in ("ada", "bob"))
    async with guarded_server(tmp_path) as connection, client_of(connection, ada) as client:
        made = await client.keys.add("a robot", role="reader", ttl=timedelta(hours=1))
        assert [each.name async for each in client.keys.list(page_size=1)] == ["a test", "a robot"]
        token = (await client.keys.list_page(page_size=1)).next_page_token
        async with client_of(connection, bob) as other:
            with pytest.raises(mnemon.InvalidPageTokenError):
                await other.keys.list_page(page_size=1, page_token=token)
        assert made.key.expire_time is not None
        assert made.secret not in repr(made.key)
        async with client_of(connection, made.secret) as robot:
            assert await robot.who_am_i() == mnemon.Identity(
                tenant="ada",
                subject=f"key:{made.key.key_id}",
                role=mnemon.Role.READER,
                expire_time=made.key.expire_time,
            )
        for call in (
            client.keys.revoke(key_id(bob)),
            client.keys.rotate(bob),
            client.keys.revoke(bob),
            client.keys.revoke(f" {bob[:-4]}\n"),
        ):
            with pytest.raises(mnemon.KeyNotFoundError, match=f"no API key has the id '{key_id(bob)}'") as caught:
                await call
            assert bob[25:50] not in repr(caught.value.__cause__)
        with pytest.raises(mnemon.KeyNotFoundError, match="the id 'none'"):
            await client.keys.revoke("none")
        await client.keys.revoke(made.key.key_id)
        assert not await is_valid(connection, made.secret)
        assert await is_valid(connection, bob)
        with pytest.raises(mnemon.InvalidArgumentError, match="name"):
            await client.keys.add(" ", role="reader")


async def test_an_operator_manages_the_keys_of_every_tenant_and_of_operators(tmp_path: Path) -> None:
    operator, admin = make_key(tmp_path, "operator"), make_key(tmp_path, "admin", tenant="ada")
    async with guarded_server(tmp_path) as connection, client_of(connection, operator) as client:
        assert await client.who_am_i() == mnemon.Identity(
            tenant="", subject=f"key:{key_id(operator)}", role=mnemon.Role.OPERATOR
        )
        made = await client.keys.add("the first of bob", role="writer", tenant="bob")
        async with client_of(connection, made.secret) as bob:
            assert (await bob.who_am_i()).tenant == "bob"
            await bob.documents.put("note", "Bob sits by the door.")
        assert [each.name async for each in client.keys.list(tenant="bob", page_size=1)] == ["the first of bob"]
        assert [each.key_id async for each in client.keys.list(tenant="ada")] == [key_id(admin)]
        colleague = await client.keys.add("a colleague", role="operator")
        assert [each.role async for each in client.keys.list(page_size=1)] == [mnemon.Role.OPERATOR] * 2
        token = (await client.keys.list_page(page_size=1)).next_page_token
        with pytest.raises(mnemon.InvalidPageTokenError):
            await client.keys.list_page(tenant="ada", page_size=1, page_token=token)
        await client.keys.revoke(colleague.key.key_id)
        renewed = (await client.keys.rotate(key_id(admin), tenant="ada", overlap=timedelta(0))).secret
        assert [await is_valid(connection, each) for each in (admin, renewed)] == [False, True]
        await client.keys.revoke(key_id(renewed), tenant="ada")
        assert not await is_valid(connection, renewed)
        with pytest.raises(mnemon.KeyNotFoundError):
            await client.keys.revoke(made.key.key_id, tenant="ada")
        for role, tenant in (("reader", ""), ("operator", "ada"), ("reader", "No Such Name")):
            with pytest.raises(mnemon.InvalidArgumentError, match="tenant"):
                await client.keys.add("a robot", role=role, tenant=tenant)
        with pytest.raises(mnemon.PermissionDeniedError, match="needs the role writer; your credential has operator"):
            await client.documents.put("note", "An operator has no vault.")


async def test_only_operators_name_a_tenant_or_make_operators(tmp_path: Path) -> None:
    ada, bob = (make_key(tmp_path, "admin", tenant=tenant) for tenant in ("ada", "bob"))
    async with guarded_server(tmp_path) as connection, client_of(connection, ada) as client:
        for refused in (
            client.keys.add("a robot", role="reader", tenant="bob"),
            client.keys.add("a robot", role="reader", tenant="nobody"),
            client.keys.list_page(tenant="bob"),
            client.keys.rotate(key_id(bob), tenant="bob"),
            client.keys.revoke(key_id(bob), tenant="bob"),
            client.keys.add("a robot", role="operator"),
        ):
            with pytest.raises(mnemon.PermissionDeniedError, match="only operators"):
                await refused
        assert await is_valid(connection, bob)
        assert (await client.keys.add("a robot", role="reader", tenant="ada")).secret


def test_the_command_on_the_folder_manages_the_keys_of_operators(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path))
    operator, admin = make_key(tmp_path, "operator"), make_key(tmp_path, "admin")
    assert key_id(operator) in run_command("keys", "list", "--operators", *folder).stdout
    assert key_id(operator) not in run_command("keys", "list", *folder).stdout
    elsewhere = run_on_folder("keys", "revoke", operator, *folder)
    assert elsewhere == Done(1, "", f"mnemon-server: no API key has the id {key_id(operator)!r}\n")
    assert run_on_folder("keys", "rotate", operator, "--operators", *folder).returncode == 0
    revoked = run_on_folder("keys", "revoke", operator, "--operators", *folder)
    assert revoked == Done(0, f"the key {key_id(operator)} is revoked\n", "")
    assert run_on_folder("keys", "list", "--operators", *folder) == Done(0, "", "no API keys of operators\n")
    unknown = run_on_folder("keys", "list", "--tenant", "unknown", *folder)
    assert unknown == Done(0, "", "no API keys of the tenant 'unknown'\n")
    assert key_id(admin) in run_command("keys", "list", "--tenant", "default", *folder).stdout
    refused = run_command("keys", "create", "x", "--role", "operator", "--tenant", "ada", *folder)
    assert refused.returncode == 1
    assert "belongs to no tenant" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [("keys", "list"), ("keys", "revoke", "x"), ("keys", "rotate", "x"), ("tenants", "list"), ("tenants", "show", "x")],
)
def test_only_a_first_key_or_tenant_begins_a_data_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    for folder, message in ((tmp_path / "typo", "does not exist"), (tmp_path, "has no API keys and no tenants")):
        refused = run_on_folder(*words, "--data-dir", folder)
        assert (refused.returncode, refused.stdout, message in refused.stderr) == (1, "", True), refused.stderr
        assert str(folder) in refused.stderr
    assert not list(tmp_path.iterdir())


async def test_a_command_on_the_folder_changes_the_keys_of_a_running_server(tmp_path: Path) -> None:
    first = make_key(tmp_path, "admin")
    async with guarded_server(tmp_path) as connection:
        second = make_key(tmp_path, "reader")
        await eventually(lambda: is_valid(connection, second))
        assert run_command("keys", "revoke", key_id(first), "--data-dir", str(tmp_path)).returncode == 0

        async def is_revoked() -> bool:
            return not await is_valid(connection, first)

        await eventually(is_revoked)
    listed = run_command("keys", "list", "--data-dir", str(tmp_path))
    assert key_id(second) in listed.stdout
    assert "last used" in listed.stdout
    assert key_id(first) not in listed.stdout


async def test_health_needs_no_key_and_the_log_names_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = make_key(tmp_path, "reader", tenant="ada")
    with every_event_logged():
        await health_and_one_call(tmp_path, secret)
    log = capsys.readouterr().err
    assert f"key:{key_id(secret)}" in log
    assert secret not in log


async def health_and_one_call(folder: Path, secret: str) -> None:
    async with guarded_server(folder) as connection:
        async with aio.insecure_channel(str(connection.server.address)) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
            assert await check(b"", timeout=WAIT_S)
        assert await is_valid(connection, secret)


async def test_a_folder_with_keys_or_several_tenants_is_not_served_to_everybody(tmp_path: Path) -> None:
    async with guarded_server(tmp_path):
        pass
    async with whole_server(tmp_path):
        pass
    revoked = make_key(tmp_path, "admin", tenant="ada")
    for _ in range(2):
        with pytest.raises(Exception, match="has API keys or several tenants, but authentication is off"):
            async with whole_server(tmp_path):
                pass
        run_command("keys", "revoke", key_id(revoked), "--tenant", "ada", "--data-dir", str(tmp_path))


def test_a_program_that_opens_a_folder_itself_needs_no_key(tmp_path: Path) -> None:
    make_key(tmp_path, "admin")
    with mnemon.Mnemon(tmp_path, embedding_model="hashing") as memory:
        memory.documents.put("note", "Ada sits by the window.")
        assert memory.who_am_i().tenant == "default"


async def test_reembedding_reaches_every_tenant(tmp_path: Path) -> None:
    secrets = [make_key(tmp_path, "admin", tenant=tenant) for tenant in ("ada", "bob")]
    async with guarded_server(tmp_path) as connection:
        for secret in secrets:
            async with client_of(connection, secret) as client:
                await client.documents.put("note", "Ada sits by the window.", {"tenant": secret})
    done = await asyncio.to_thread(
        run_command,
        "reembed",
        "--data-dir",
        str(tmp_path),
        "--embedding-model",
        "hashing",
        "--authentication",
        "api_key",
    )
    assert "2 documents have new vectors" in done.stdout, done.stderr


async def test_without_authentication_everybody_is_admin_of_one_tenant_and_has_no_keys(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection, client_of(connection, "") as client:
        identity = await client.who_am_i()
        assert (identity.tenant, identity.subject, identity.role) == ("default", "", mnemon.Role.ADMIN)
        with pytest.raises(mnemon.FailedPreconditionError, match="authentication by API keys is off"):
            await client.keys.add("a robot", role="reader")


async def test_the_client_takes_its_key_from_the_environment_and_shows_it_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = make_key(tmp_path, "writer")
    async with guarded_server(tmp_path) as connection:
        monkeypatch.setenv("MNEMON_API_KEY", secret)
        async with mnemon.AsyncClient(str(connection.server.address)) as client:
            assert (await client.who_am_i()).role is mnemon.Role.WRITER
            assert secret not in f"{client!r}{client._connection.target!r}"
        blocking = mnemon.Client(str(connection.server.address))
        with blocking:
            assert (await asyncio.to_thread(blocking.who_am_i)).role is mnemon.Role.WRITER
            with pytest.raises(mnemon.PermissionDeniedError):
                await asyncio.to_thread(blocking.rules.reset)
    with pytest.raises(ValueError, match="api_key") as caught:
        mnemon.Client(api_key="two words")
    assert "two words" not in str(caught.value)


def client_of(connection: Connection, secret: str) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(connection.server.address), api_key=secret)


async def test_the_command_manages_keys_and_says_who_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path, "admin", tenant="ada"))
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)

        async def command(*arguments: str) -> str:
            done = await asyncio.to_thread(run, address, *arguments)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert "ada" in await command("whoami")
        secret = (await command("keys", "create", "a robot", "--role", "reader", "--ttl-days", "1")).splitlines()[-1]
        for number in ("-1", "nan", "inf", "1e9", "-1e300"):
            for words, message in (
                (("keys", "create", "x", "--role", "reader", "--ttl-days"), "ttl: must be a second to 100 years"),
                (("keys", "rotate", key_id(secret), "--overlap-hours"), "overlap: must be 0 to 30 days"),
            ):
                for refused in (
                    await asyncio.to_thread(run, address, *words, number),
                    await asyncio.to_thread(run_on_folder, *words, number, "--data-dir", tmp_path),
                ):
                    assert (refused.returncode, message in refused.stderr) == (1, True), refused.stderr
        rotated = (await command("keys", "rotate", key_id(secret), "--overlap-hours", "0")).splitlines()[-1]
        assert [await is_valid(connection, each) for each in (secret, rotated)] == [False, True]
        assert "a robot" in await command("keys", "list")
        assert await command("keys", "revoke", secret) == f"the key {key_id(secret)} is revoked\n"
        assert not await is_valid(connection, rotated)
        assert key_id(secret) not in await command("keys", "list", "--json")
        assert "ada" in await command("whoami", "--json")


async def test_the_last_key_of_an_admin_is_not_revoked_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = make_key(tmp_path, "admin", tenant="ada")
    monkeypatch.setenv("MNEMON_API_KEY", secret)
    async with guarded_server(tmp_path) as connection:
        revoke = (str(connection.server.address), "keys", "revoke", key_id(secret))

        asked = await asyncio.to_thread(run, *revoke)

        assert (asked.returncode, "No admin's key would be left" in asked.stderr) == (1, True), asked
        assert await is_valid(connection, secret)
        assert (await asyncio.to_thread(run, *revoke, "--yes")).returncode == 0
        assert not await is_valid(connection, secret)
