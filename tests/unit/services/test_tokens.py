"""Tokens: which caller one identifies, for how long, and which ones are refused."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jwt.utils import base64url_encode
from mnemon_server.domain.access import Credentials, Principal, Role
from mnemon_server.domain.errors import UnauthenticatedError
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.tenant_file import TenantFile
from mnemon_server.services.access.key_sets import KeySet, KeySetError, UnknownKeyError
from mnemon_server.services.access.tenants import Tenants, UnknownTenantError
from mnemon_server.services.access.tokens import TOKEN_BYTES_MAX, Tokens, TrustedIssuer

from tests.support.issuers import ISSUER, SigningKey, key_set
from tests.unit.services.test_issuers import issuer
from tests.unit.services.test_key_sets import Clock, Source

FIRST, SECOND = SigningKey("first"), SigningKey("second")
ANY_TENANT = {"tenant": "", "tenant_claim": ("org",)}


class Verifier:
    """Tokens of one issuer, whose keys and time a test changes."""

    def __init__(self, tokens: Tokens, keys: KeySet, source: Source, clock: Clock) -> None:
        self.tokens, self.keys, self.source, self.clock = tokens, keys, source, clock

    def who(self, token: str) -> Principal | None:
        return self.tokens.identify(Credentials(token))

    async def publish(self, *keys: SigningKey) -> None:
        self.source.value = key_set(*keys)
        await self.keys._turn()


@asynccontextmanager
async def verifier(folder: Path, **changes: Any) -> AsyncIterator[Verifier]:
    # The library also reads the machine's clock.
    clock, source = Clock(), Source(key_set(FIRST))
    clock.now = datetime.now(UTC)
    file = AccessFile(folder)
    async with (
        KeySet(source, "here", refresh_s=3600, stale_s=600, clock=clock) as keys,
        Tenants(TenantFile(file)) as tenants,
    ):
        tokens = Tokens(tenants, clock=clock)
        tokens.trust({ISSUER: TrustedIssuer(issuer(leeway=timedelta(0), **changes), keys)})
        yield Verifier(tokens, keys, source, clock)
    file.close()


async def test_a_token_is_verified_once_and_names_its_caller_until_it_ends(tmp_path: Path) -> None:
    async with verifier(tmp_path) as of:
        token = FIRST.sign(exp=int(of.clock.now.timestamp()) + 300)
        first = of.who(token)
        assert first is not None
        assert (first.tenant, first.subject, first.role) == ("acme", "jwt:login:ada", Role.WRITER)
        of.clock.now += timedelta(seconds=298)
        assert of.who(token) is first
        of.clock.now += timedelta(seconds=2)
        with pytest.raises(UnauthenticatedError, match="it has expired"):
            of.who(token)


async def test_what_is_no_token_is_left_to_others(tmp_path: Path) -> None:
    async with verifier(tmp_path) as of:
        for text in ("", "mn_0123456789abcdef_secret", "one.dot", "a.b.c.d"):
            assert of.who(text) is None


async def test_a_token_ends_with_the_key_that_signed_it(tmp_path: Path) -> None:
    async with verifier(tmp_path) as of:
        token = FIRST.sign()
        assert of.who(token)
        await of.publish(FIRST, SECOND)
        assert of.who(token)
        await of.publish(SECOND)
        with pytest.raises(UnknownKeyError):
            of.who(token)


async def test_a_token_ends_when_the_keys_are_stale(tmp_path: Path) -> None:
    async with verifier(tmp_path) as of:
        token = FIRST.sign()
        of.source.value = KeySetError("away")
        of.clock.now += timedelta(seconds=599)
        assert of.who(token)
        of.clock.now += timedelta(seconds=1)
        with pytest.raises(UnauthenticatedError, match="could not be read"):
            of.who(token)


async def test_an_issuer_that_is_no_longer_trusted_ends_its_tokens(tmp_path: Path) -> None:
    async with verifier(tmp_path) as of:
        token = FIRST.sign()
        assert of.who(token)
        of.tokens.trust({})
        with pytest.raises(UnauthenticatedError, match="does not trust its issuer"):
            of.who(token)


def unsigned(**claims: object) -> str:
    """A token that no library would make, and no key has signed."""
    parts = [json.dumps(each).encode() for each in ({"alg": "RS256", "kid": "first"}, claims)]
    return ".".join(base64url_encode(part).decode() for part in [*parts, b"no signature"])


async def test_the_refusal_says_what_is_wrong(tmp_path: Path) -> None:
    async with verifier(tmp_path) as of:
        for token, says in (
            (FIRST.sign(note="x" * TOKEN_BYTES_MAX), "it is longer than"),
            (FIRST.sign(iss="https://other.example.com/"), "does not trust its issuer"),
            (FIRST.sign(iss=None), "does not trust its issuer"),
            (unsigned(iss=5), "does not trust its issuer"),
            (unsigned(iss=["https://login.example.com/"]), "not a well-formed JWT"),
            (FIRST.sign({"kid": ""}), "names no key"),
            (FIRST.sign(aud="another"), "another audience"),
        ):
            with pytest.raises(UnauthenticatedError, match=says):
                of.who(token)


async def test_a_tenant_that_a_token_may_name_freely_must_exist(tmp_path: Path) -> None:
    async with verifier(tmp_path, **ANY_TENANT) as of:
        with pytest.raises(UnknownTenantError):
            of.who(FIRST.sign(org="acme"))
    async with verifier(tmp_path, **ANY_TENANT, tenants=("acme",)) as of:
        named = of.who(FIRST.sign(org="acme"))
        assert named is not None
        assert named.tenant == "acme"


async def test_an_operator_belongs_to_no_tenant_so_none_must_exist(tmp_path: Path) -> None:
    async with verifier(tmp_path, **ANY_TENANT, role=Role.OPERATOR) as of:
        operator = of.who(FIRST.sign(org="acme"))
        assert operator is not None
        assert (operator.tenant, operator.role) == ("", Role.OPERATOR)
