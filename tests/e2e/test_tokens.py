"""Tokens of an identity provider: who calls with one, every way to be refused, and keys that change or are away."""

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import jwt
import mnemon
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from mnemon.v1 import access_pb2 as pb
from mnemon.v1 import access_pb2_grpc, changes_pb2

from tests.support.access import bearer, every_event_logged, make_key
from tests.support.issuers import (
    AUDIENCE,
    ISSUER,
    SigningKey,
    key_server,
    publish,
    trusting_server,
    write_identities,
)
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

KEY, RSA = SigningKey("first"), SigningKey("rsa", "RS256")


async def who(connection: Connection, token: str) -> Any:
    """The answer to WhoAmI, or the error."""
    stub: Any = access_pb2_grpc.AccessServiceStub(connection.channel)
    try:
        return await stub.WhoAmI(pb.WhoAmIRequest(), metadata=bearer(token))
    except grpc.aio.AioRpcError as error:
        return error


async def is_valid(connection: Connection, token: str) -> bool:
    return isinstance(await who(connection, token), pb.WhoAmIResponse)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_says_who_calls(tmp_path: Path, algorithm: str) -> None:
    key = SigningKey("k", algorithm)
    token = key.sign(groups=["staff", "unknown", "owners"])
    async with trusting_server(tmp_path, key) as connection:
        for _ in range(2):
            answer = await who(connection, token)
            assert (answer.tenant, answer.subject, answer.role) == ("acme", "jwt:login:ada", pb.ROLE_ADMIN)
            assert abs(answer.expire_time.seconds - time.time() - 3600) < 60
        scopes = await who(connection, key.sign(groups="guests staff", aud=["other", AUDIENCE]))
        assert scopes.role == pb.ROLE_WRITER


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes = b"") -> str:
    """A token with any header, signed as HS256 if there is a secret."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    signature = hmac.digest(secret, ".".join(parts).encode(), hashlib.sha256) if secret else b""
    return ".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=").decode()])


def refused_tokens() -> dict[str, tuple[str, str]]:
    """Every way to be refused: a token, and what the error says."""
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": "ada", "aud": AUDIENCE, "exp": now + 3600}
    pem = RSA.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = RSA.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    good = KEY.sign()
    head, body, signature = good.split(".")
    other = jwt.encode(claims, RSA.private, "RS512", {"kid": "rsa"})
    return {
        "none": (forged({"alg": "none", "kid": "first"}, claims), "another algorithm"),
        "none, in capitals": (forged({"alg": "NONE", "kid": "first"}, claims), "another algorithm"),
        "the public key as a secret": (forged({"alg": "HS256", "kid": "rsa"}, claims, pem), "another algorithm"),
        "the same in DER": (forged({"alg": "HS256", "kid": "rsa"}, claims, der), "another algorithm"),
        "no algorithm": (forged({"kid": "first"}, claims), "another algorithm"),
        "an algorithm that we do not take": (other, "another algorithm"),
        "the algorithm of another key": (RSA.sign({"kid": "first"}), "another algorithm"),
        "the key of somebody else": (SigningKey("first").sign(), "its signature is wrong"),
        "an unknown key": (SigningKey("second").sign(), "does not publish"),
        "no key": (forged({"alg": "EdDSA"}, claims), "names no key"),
        "a key of its own": (SigningKey("x").sign({"jwk": KEY.public, "jku": "http://127.0.0.1/"}), "does not publish"),
        "extensions": (KEY.sign({"crit": ["exp"], "exp": 1}), "not a well-formed JWT"),
        "another issuer": (KEY.sign(iss="https://evil.example.com/"), "does not trust its issuer"),
        "almost the issuer": (KEY.sign(iss=ISSUER.rstrip("/")), "does not trust its issuer"),
        "no issuer": (KEY.sign(iss=None), "does not trust its issuer"),
        "another audience": (KEY.sign(aud="somebody"), "for another audience"),
        "no audience": (KEY.sign(aud=None), "no claim aud"),
        "expired": (KEY.sign(exp=now - 1), "it has expired"),
        "without an end": (KEY.sign(exp=None), "no claim exp"),
        "an endless end": (KEY.sign(exp=1e300), "not a well-formed JWT"),
        "not valid yet": (KEY.sign(nbf=now + 600), "not valid yet"),
        "issued in the future": (KEY.sign(iat=now + 600), "not valid yet"),
        "no subject": (KEY.sign(sub=None), "no claim sub"),
        "an empty subject": (KEY.sign(sub=""), "its sub is not"),
        "a subject of two lines": (KEY.sign(sub="ada\nbob"), "its sub is not"),
        "a huge token": (KEY.sign(note="x" * 9000), "longer than"),
        "a changed body": (f"{head}.{body[:-4]}AAAA.{signature}", "not valid"),
        "deeply nested": (f"{base64.urlsafe_b64encode(b'[' * 3000).decode()}.e30.", "not a well-formed JWT"),
        "no JSON": ("a.b.c", "not a well-formed JWT"),
        "nothing": ("", "who calls is not known"),
        "no token": (
            "mn_0123456789abcdef_" + "A" * 43,
            "has no credential that this server accepts",
        ),
    }


async def test_every_other_token_is_refused_and_shown_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = refused_tokens()
    with every_event_logged():
        await refuse_all(tmp_path, tokens)
    log = capsys.readouterr().err
    assert "UNAUTHENTICATED" in log
    assert not [why for why, (token, _) in tokens.items() if token.count(".") == 2 and token[-20:] in log]


async def refuse_all(folder: Path, tokens: dict[str, tuple[str, str]]) -> None:
    async with trusting_server(folder, KEY, RSA) as connection:
        for why, (token, says) in tokens.items():
            error = await who(connection, token)
            assert isinstance(error, grpc.aio.AioRpcError), why
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"), why
            assert says in str(error.details()), (why, error.details())
            assert not token or token not in str(error.details()), why
        denied = await who(connection, KEY.sign(groups=["strangers"]))
        assert denied.code() is grpc.StatusCode.PERMISSION_DENIED
        assert await is_valid(connection, KEY.sign())


async def test_a_claim_names_the_tenant_only_where_the_file_permits_it(tmp_path: Path) -> None:
    token = KEY.sign(org="globex", tenant="globex")
    async with trusting_server(tmp_path, KEY) as connection:
        assert (await who(connection, token)).tenant == "acme"
    claim = {"tenant": "", "tenant_claim": '["mnemon", "org"]', "tenants": '["globex", "initech"]'}
    async with trusting_server(tmp_path, KEY, **claim) as connection:
        assert (await who(connection, KEY.sign(mnemon={"org": "initech"}))).tenant == "initech"
        for named in ({"org": "acme"}, {"org": "../globex"}, {"org": ["globex"]}, {}, "globex", None):
            assert (await who(connection, KEY.sign(mnemon=named))).code() is grpc.StatusCode.UNAUTHENTICATED, named


async def test_a_claim_binds_callers_to_users_and_namespaces(tmp_path: Path) -> None:
    claims = {"users_claim": '"sub"', "namespaces_claim": '"spaces"'}
    async with trusting_server(tmp_path, KEY, **claims) as connection:
        address = str(connection.server.address)
        ada, bob = (KEY.sign(sub=user, spaces=[f"users.{user}"]) for user in ("ada", "bob"))
        async with mnemon.AsyncClient(address, token=ada) as client:
            await client.documents.put("note", "Ada sits by the window.")
            await client.facts.put(("users", "ada"), "seat", {"row": 12})
            assert await client.documents.count() == 1
        async with mnemon.AsyncClient(address, token=bob) as client:
            assert await client.documents.count() == 0
            for read in (client.documents.get("note"), client.facts.get(("users", "ada"), "seat")):
                with pytest.raises(mnemon.NotFoundError):
                    await read
            with pytest.raises(mnemon.PermissionDeniedError):
                await client.facts.put(("users", "ada"), "seat", {"row": 13})
        async with mnemon.AsyncClient(address, token=KEY.sign(sub="eve", groups=["owners"])) as admin:
            assert await admin.documents.count() == 1
        for spaces in (None, [], "", ["*"], [7], ["a..b"], {"a": 1}):
            assert not await is_valid(connection, KEY.sign(sub="ada", spaces=spaces)), spaces
        assert not await is_valid(connection, KEY.sign(sub="*", spaces=["users.ada"]))


async def test_a_tenant_that_a_claim_names_freely_must_be_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with trusting_server(tmp_path, KEY, tenant="", tenant_claim='"org"') as connection:
        token = KEY.sign(org="acme")
        for _ in range(2):
            refused = await who(connection, token)
            assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "the tenant 'acme' does not exist; an operator can create it" in str(refused.details())
        assert not (data / "tenants" / "acme").exists()
        assert [each["tenant"] for each in await tenants_of(data)] == ["default"]
        assert (await on_folder(data, "create", "acme")).returncode == 0
        assert (await who(connection, token)).tenant == "acme"
        for named in ("../acme", "", "Acme", "a/b", "a" * 64):
            assert (await who(connection, KEY.sign(org=named))).code() is grpc.StatusCode.UNAUTHENTICATED, named


async def test_a_tenant_begins_with_a_token_only_if_the_file_says_so(tmp_path: Path) -> None:
    free = {"tenant": "", "tenant_claim": '"org"', "creates_tenants": "true"}
    async with trusting_server(tmp_path, KEY, **free) as connection:
        assert (await who(connection, KEY.sign(org="anything"))).tenant == "anything"
        assert [each["tenant"] for each in await tenants_of(tmp_path / "data")] == ["default", "anything"]
    async with trusting_server(tmp_path, KEY, **{**free, "creates_tenants": ""}) as connection:
        assert (await who(connection, KEY.sign(org="anything"))).tenant == "anything"
        assert (await who(connection, KEY.sign(org="else"))).code() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_operator_by_token_manages_the_tenants_of_a_server_without_keys(tmp_path: Path) -> None:
    free = {"tenant": "", "tenant_claim": '"org"', "roles": '{ staff = "writer", team = "operator" }'}
    async with trusting_server(tmp_path, KEY, **free) as connection:
        address = str(connection.server.address)
        async with (
            mnemon.AsyncClient(address, token=KEY.sign(groups=["team", "staff"], org="acme")) as operator,
            mnemon.AsyncClient(address, token=KEY.sign(org="acme")) as acme,
        ):
            assert (await operator.who_am_i()).role is mnemon.Role.OPERATOR
            assert (await operator.who_am_i()).tenant == ""
            await operator.tenants.add("acme")
            await acme.documents.put("note", "Ada sits by the window.")
            assert (await operator.tenants.usage("acme")).records["document"] == 1
            for refused in (operator.documents.get("note"), acme.tenants.add("globex"), acme.tenants.usage("default")):
                with pytest.raises(mnemon.PermissionDeniedError):
                    await refused
            with pytest.raises(mnemon.FailedPreconditionError, match="authentication by API keys is off"):
                await operator.keys.list_page()
            await operator.tenants.suspend("acme", "moved away")
            with pytest.raises(mnemon.TenantSuspendedError, match="moved away"):
                await acme.documents.get("note")


async def tenants_of(folder: Path) -> Any:
    return json.loads((await on_folder(folder, "list", "--json")).stdout)


async def on_folder(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run_command, "tenants", *words, "--data-dir", str(folder))


async def test_a_stream_ends_when_its_token_does_and_when_its_key_is_removed(tmp_path: Path) -> None:
    other = SigningKey("other")
    async with trusting_server(tmp_path, KEY, other) as connection:
        removed, kept = watch(connection, KEY.sign()), watch(connection, other.sign())
        for each in (removed, kept):
            assert (await each.read()).HasField("started")
        short = await begun_watch(connection, lambda: KEY.sign(exp=int(time.time()) + 2))
        _, error = await stream_end(short)
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        assert not removed.done()
        publish(tmp_path, other)
        _, error = await stream_end(removed)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await is_valid(connection, other.sign())
        assert not kept.done()
        kept.cancel()
        await until(lambda: connection.server.open_streams == 0)


async def begun_watch(connection: Connection, token: Callable[[], str]) -> Any:
    """A watch that was valid at first. On a busy machine, what ends soon may have ended before the watch begins."""
    async with asyncio.timeout(WAIT_S):
        while True:
            stream = watch(connection, token())
            with suppress(grpc.aio.AioRpcError):
                assert (await stream.read()).HasField("started")
                return stream


async def test_hundreds_of_streams_end_with_the_key_that_signed_their_tokens(tmp_path: Path) -> None:
    other = SigningKey("other")
    publish(tmp_path, KEY, other)
    settings = {"identity_file": write_identities(tmp_path, "jwks.json"), "streams_max": 1000}
    async with whole_server(tmp_path / "data", authentication=("jwt",), **settings) as connection:
        watches = [watch(connection, KEY.sign(sub=f"watcher {number}")) for number in range(200)]
        imports = [
            connection.memories.BulkCreateMemories(metadata=bearer(KEY.sign(sub=f"importer {number}")))
            for number in range(50)
        ]
        for each in watches:
            assert (await each.read()).HasField("started")
        await until(lambda: connection.server.open_streams == 250)
        publish(tmp_path, other)
        ends = await asyncio.gather(*(stream_end(each) for each in (*watches, *imports)))
        assert {error.code() for _, error in ends} == {grpc.StatusCode.UNAUTHENTICATED}
        assert connection.server.open_streams == 0


def watch(connection: Connection, token: str) -> Any:
    request = changes_pb2.WatchChangesRequest()
    return connection.changes.WatchChanges(request, metadata=bearer(token))


async def test_a_new_key_is_found_at_once_but_an_invented_one_makes_the_server_look_once_a_minute(
    tmp_path: Path,
) -> None:
    first, second, third = (SigningKey(name) for name in ("first", "second", "third"))
    with key_server(first) as keys:
        identities = write_identities(tmp_path, keys.url, refresh_s="3600")
        async with whole_server(tmp_path / "data", authentication=("jwt",), identity_file=identities) as connection:
            assert await is_valid(connection, first.sign())
            assert keys.requests == 1
            keys.publish(first, second)
            assert await is_valid(connection, second.sign())
            assert keys.requests == 2
            keys.publish(first, second, third)
            for _ in range(3):
                assert not await is_valid(connection, third.sign())
            assert keys.requests == 2


async def test_known_keys_stay_valid_while_their_server_is_away_or_slow_or_answers_nonsense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = SigningKey("first"), SigningKey("second")
    with every_event_logged(), key_server(first) as keys:
        identities = write_identities(tmp_path, keys.url)
        async with whole_server(tmp_path / "data", authentication=("jwt",), identity_file=identities) as connection:
            good = keys.body
            for body, status in ((b"nonsense", 200), (b'{"keys": 1}', 200), (b"[" * 100_000, 200), (b"{}", 503)):
                keys.body, keys.status = body, status
                await several(keys)
                assert await is_valid(connection, first.sign()), body[:20]
            keys.stop()
            assert await is_valid(connection, first.sign())
            keys.body, keys.status = good, 200
            keys.start()
            await several(keys)
            keys.may_answer.clear()
            await several(keys, 1)
            assert await is_valid(connection, first.sign())
            keys.publish(second)
            keys.may_answer.set()
            await eventually(lambda: is_valid(connection, second.sign()))
            assert not await is_valid(connection, first.sign())
    log = capsys.readouterr().err
    assert log.count("the keys of an issuer cannot be read") == 1
    assert log.count("the keys of an issuer can be read again") == 1


async def several(keys: Any, count: int = 2) -> None:
    """Waits until the server of the keys was asked so many times again."""
    before = keys.requests
    await until(lambda: keys.requests >= before + count)


async def test_keys_that_cannot_be_read_for_too_long_are_not_valid(tmp_path: Path) -> None:
    with key_server(KEY) as keys:
        identities = write_identities(tmp_path, keys.url, stale_s="2")
        async with whole_server(tmp_path / "data", authentication=("jwt",), identity_file=identities) as connection:
            stream = await begun_watch(connection, KEY.sign)
            keys.status = 503
            _, error = await stream_end(stream)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            refused = await who(connection, KEY.sign())
            assert "could not be read" in str(refused.details())
            keys.status = 200
            await eventually(lambda: is_valid(connection, KEY.sign()))


async def test_the_identity_file_is_followed_and_an_invalid_one_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with every_event_logged():
        async with trusting_server(tmp_path, KEY) as connection:
            log: list[str] = []

            def is_reported() -> bool:
                log.append(capsys.readouterr().err)
                return "roles.staff must be one of" in "".join(log)

            async def is_reader() -> bool:
                return bool((await who(connection, KEY.sign())).role == pb.ROLE_READER)

            write_identities(tmp_path, "jwks.json", roles='{ staff = "emperor" }')
            await until(is_reported)
            assert (await who(connection, KEY.sign())).role == pb.ROLE_WRITER
            write_identities(tmp_path, "jwks.json", roles='{ staff = "reader" }')
            await eventually(is_reader)


async def test_tokens_and_keys_are_accepted_side_by_side(tmp_path: Path) -> None:
    secret = make_key(tmp_path / "data", "reader", tenant="globex")
    async with trusting_server(tmp_path, KEY, authentication=("api_key", "jwt")) as connection:
        assert (await who(connection, secret)).tenant == "globex"
        assert (await who(connection, KEY.sign())).tenant == "acme"
        neither = await failure_of(access_pb2_grpc.AccessServiceStub(connection.channel).WhoAmI(pb.WhoAmIRequest()))
        assert "valid API key" in str(neither.details())
        assert "a token of an issuer" in str(neither.details())
        async with mnemon.AsyncClient(str(connection.server.address), api_key=KEY.sign()) as client:
            with pytest.raises(mnemon.PermissionDeniedError):
                await client.keys.add("a robot", role="reader")
