"""An erasure ends the keys of its subject if asked to, and says where the name stays. No log has it in clear."""

import json
from pathlib import Path

import pytest
from mnemon import AsyncClient, InvalidArgumentError, Scope, UnauthenticatedError
from mnemon._values.access import KeySecret
from mnemon_server.domain.access.audit import AuditEntry
from mnemon_server.engines.audit_file import AuditFile

from tests.support.access import guarded_server, key_id, make_key
from tests.support.erasing import found_in, word
from tests.support.issuers import SigningKey, publish, write_identities
from tests.support.server import ServerProcess, eventually, run_command

ADA, BOB = word("ada"), word("bob")
ISSUER_KEY = SigningKey("first")
COPIES = "backups, exports and copies that were made before"


async def bound_key(admin: AsyncClient, *users: str, namespace: str = "") -> KeySecret:
    """A new key of a writer."""
    return await admin.keys.add("a robot", role="writer", users=users, namespaces=[namespace] if namespace else [])


async def is_refused(address: str, secret: str) -> bool:
    """Whether a key is no longer accepted."""
    async with AsyncClient(address, api_key=secret) as client:
        try:
            await client.who_am_i()
        except UnauthenticatedError:
            return True
    return False


async def test_no_file_and_no_log_names_an_erased_user_whose_keys_are_revoked(tmp_path: Path) -> None:
    data, traces = tmp_path / "data", {"ada": ADA.encode()}
    admin_key = make_key(data, "admin", tenant="acme")
    publish(tmp_path, ISSUER_KEY)
    identities = write_identities(tmp_path, "jwks.json", users_claim='"sub"', namespaces_claim="")
    flags = ("--authentication", "api_key,jwt", "--knowledge-store-backend", "local")
    server = ServerProcess(data, *flags, "--identity-file", str(identities))
    try:
        async with AsyncClient(server.address(), api_key=admin_key) as admin:
            keys = [await bound_key(admin, ADA), await bound_key(admin, namespace=f"users.{ADA}.notes")]
            shared = await bound_key(admin, ADA, BOB)
            for token in (keys[0].secret, shared.secret, ISSUER_KEY.sign(sub=ADA)):
                async with AsyncClient(server.address(), token=token) as client:
                    await client.memories.add("She likes tea.", user=ADA)
            assert {"access.db", "access.db.copy"} < {*found_in(data, traces)["ada"]}
            receipt = await admin.erasures.run(user=ADA, revoke_keys=True)
            assert receipt.is_complete and receipt.said["revoke_keys"] is True
            assert receipt.out_of_reach == (COPIES,)
            assert [key.key_id async for key in admin.keys.list()] == [key_id(admin_key), shared.key.key_id]
        assert [await is_refused(server.address(), key.secret) for key in keys] == [True, True]
        async with AsyncClient(server.address(), api_key=shared.secret) as client:
            assert (await client.who_am_i()).users == (BOB,)
            await client.memories.add("He likes milk.")
    finally:
        server.end()
    assert found_in(data, traces) == {}
    assert ADA not in server.output and "MemoryService/CreateMemory" in server.output
    shown = run_command("audit", "show", "--subject", f"jwt:login:{ADA}", "--data-dir", str(data))
    [line] = shown.stdout.splitlines()
    assert json.loads(line)["method"] == "mnemon.v1.MemoryService/CreateMemory"
    assert run_command("audit", "verify", "--data-dir", str(data)).returncode == 0


async def test_without_being_asked_an_erasure_ends_no_key_and_its_receipt_names_them(tmp_path: Path) -> None:
    admin_key = make_key(tmp_path, "admin")
    AuditFile(tmp_path).append([AuditEntry(0, "default", f"jwt:login:{ADA}", "a peer", "a method", "OK", "a request")])
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)
        async with AsyncClient(address, api_key=admin_key) as admin:
            bound, other = await bound_key(admin, ADA), await bound_key(admin, BOB)
            named = await admin.keys.add(f"robot-of-{ADA}", role="writer")
            with pytest.raises(InvalidArgumentError, match="revoke_keys"):
                await admin.erasures.run(kind="memory", scope=Scope(user=ADA), revoke_keys=True)
            receipt = await admin.erasures.run(user=ADA, request_id="one")
            assert receipt.out_of_reach == (
                f"the API key {bound.key.key_id}, which is bound to it and still valid",
                f"the name of the API key {named.key.key_id}",
                "lines of the audit log that an earlier version wrote",
                COPIES,
            )
            assert [await is_refused(address, key.secret) for key in (bound, other, named)] == [False, False, False]
            again = await admin.erasures.run(user=ADA, revoke_keys=True)
            assert bound.key.key_id not in str(again.out_of_reach)

            async def is_over() -> bool:
                return await is_refused(address, bound.secret)

            await eventually(is_over)
            assert not await is_refused(address, other.secret)
