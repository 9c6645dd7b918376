"""Clients whose token is renewed, and clients with certificates."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import mnemon
import pytest

from tests.e2e.test_certificates import ROBOT, tls_server
from tests.support.certificates import Authority
from tests.support.issuers import SigningKey, publish, trusting_server
from tests.support.server import Connection, until

KEY, NEXT, STRANGER = SigningKey("first"), SigningKey("next"), SigningKey("stranger")


class Provider:
    """Gives the tokens of a list, the last one again and again; counts how many it gave."""

    def __init__(self, *tokens: str) -> None:
        self._tokens, self.given = tokens, 0

    def __call__(self) -> str:
        self.given += 1
        return self._tokens[min(self.given, len(self._tokens)) - 1]

    async def later(self) -> str:
        """As a call."""
        await asyncio.sleep(0)
        return self()


def blocking(connection: Connection, token: str | Callable[[], str]) -> mnemon.Client:
    return mnemon.Client(str(connection.server.address), token=token)


async def test_a_function_is_called_once_for_all_calls_and_again_before_its_token_expires(tmp_path: Path) -> None:
    lasting, short = Provider(KEY.sign()), Provider(KEY.sign(exp=int(time.time())))
    async with trusting_server(tmp_path, KEY, leeway_s="600") as connection:
        for provider, calls in ((lasting, 1), (short, 3)):
            with blocking(connection, provider) as client:
                for _ in range(3):
                    assert (await asyncio.to_thread(client.who_am_i)).subject == "jwt:login:ada"
            assert provider.given == calls
        awaited = Provider(KEY.sign())
        for token in (KEY.sign(), lasting, awaited.later):
            async with mnemon.AsyncClient(str(connection.server.address), token=token) as client:
                found = await asyncio.gather(*(client.who_am_i() for _ in range(3)))
                assert {each.tenant for each in found} == {"acme"}
        assert awaited.given == 1


async def test_a_refused_token_is_renewed_once_also_for_writes(tmp_path: Path) -> None:
    async with trusting_server(tmp_path, KEY) as connection:
        late = Provider(STRANGER.sign(), KEY.sign())
        async with mnemon.AsyncClient(str(connection.server.address), token=late) as client:
            assert (await client.documents.put("note", "Ada sits by the window.")).revision == 1
        assert late.given == 2
        wrong = Provider(STRANGER.sign())
        with blocking(connection, wrong) as refused, pytest.raises(mnemon.UnauthenticatedError):
            await asyncio.to_thread(refused.documents.get, "note")
        assert wrong.given == 2
        with blocking(connection, STRANGER.sign()) as fixed, pytest.raises(mnemon.UnauthenticatedError):
            await asyncio.to_thread(fixed.documents.get, "note")


async def test_streams_go_on_with_a_new_token_when_theirs_is_no_longer_valid(tmp_path: Path) -> None:
    tokens = Provider(KEY.sign(), NEXT.sign())
    async with trusting_server(tmp_path, KEY, NEXT) as connection:
        address = str(connection.server.address)
        async with mnemon.AsyncClient(address, token=tokens) as client, client.watch() as changes:
            assert tokens.given == 1
            following = asyncio.create_task(_next(changes))
            publish(tmp_path, NEXT)
            await until(lambda: tokens.given == 2)
            async with mnemon.AsyncClient(address, token=NEXT.sign()) as other:
                await other.documents.put("note", "Ada sits by the window.")
            assert (await following).record_id == "note"
            late = Provider(STRANGER.sign(), NEXT.sign())
        async with mnemon.AsyncClient(address, token=late) as client:
            stored = [each async for each in client.documents.put_many([("a", "one"), ("b", "two")])]
            assert [each.error for each in stored] == [None, None]
        assert late.given == 2
        again = Provider(STRANGER.sign(), NEXT.sign())
        with blocking(connection, again) as sync:
            stored = await asyncio.to_thread(lambda: list(sync.documents.put_many([("c", "three")])))
            assert [each.error for each in stored] == [None]


async def _next(changes: mnemon.AsyncWatch) -> mnemon.Change:
    return await anext(changes)


async def test_what_a_function_raises_the_call_raises_and_nothing_is_shown(tmp_path: Path) -> None:
    def broken() -> str:
        raise LookupError("the provider is away")

    async with trusting_server(tmp_path, KEY) as connection:
        for token, kind, says in (
            (broken, LookupError, "the provider is away"),
            (lambda: "two words", ValueError, "token is not valid"),
            (Provider(KEY.sign()).later, TypeError, "only AsyncClient awaits it"),
        ):
            with blocking(connection, token) as client, pytest.raises(kind, match=says) as caught:  # type: ignore[arg-type]
                await asyncio.to_thread(client.who_am_i)
            assert "two words" not in str(caught.value)
    with pytest.raises(ValueError, match="api_key contradicts token"):
        mnemon.Client(api_key="a", token="b")  # noqa: S106 - no secret


async def test_a_client_connects_with_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem, key = authority.issue("robot", ROBOT)
    async with tls_server(tmp_path, authority) as connection:
        address, ca = str(connection.server.address), authority.path
        async with mnemon.AsyncClient(address, ca_file=ca, certificate_file=pem, key_file=key) as client:
            assert (await client.who_am_i()).subject == f"mtls:{ROBOT}"
        with mnemon.Client(address, ca_file=ca, certificate_file=str(pem), key_file=str(key)) as blocking_client:
            assert (await asyncio.to_thread(blocking_client.who_am_i)).subject == f"mtls:{ROBOT}"
    for given, says in (
        ({"certificate_file": pem}, "belong together"),
        ({"certificate_file": pem, "key_file": key, "insecure": True}, "contradicts"),
    ):
        with pytest.raises(ValueError, match=says):
            mnemon.Client(address, **given)
