"""Key sets: which keys are taken, and for how long."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from mnemon_server.domain.errors import UnauthenticatedError
from mnemon_server.services.access.key_sets import KEYS_MAX, RETRY_S, KeySet, KeySetError, UnknownKeyError, read_file

from tests.support.access import every_event_logged
from tests.support.issuers import SigningKey, key_set


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Source:
    """What a key set is read from; counts how often."""

    def __init__(self, value: Any) -> None:
        self.value, self.reads = value, 0

    def __call__(self) -> Any:
        self.reads += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def opened(source: Source, clock: Clock) -> KeySet:
    """A set that is read once, and then only for unknown keys."""
    return KeySet(source, "here", refresh_s=3600, stale_s=600, clock=clock)


async def test_keys_that_may_not_sign_for_us_are_left_out() -> None:
    good = SigningKey("good", "RS256").public
    short = rsa.generate_private_key(65_537, 1024)  # noqa: S505 - it is to be refused
    entries = [
        good,
        {**good, "kid": "for encryption", "use": "enc"},
        {**good, "kid": "for another algorithm", "alg": "RS512"},
        {**good, "kid": ""},
        {**good, "kid": 7},
        {name: value for name, value in good.items() if name != "kid"},
        {**good, "kid": "broken", "n": "*"},
        {**json.loads(RSAAlgorithm.to_jwk(short.public_key())), "kid": "short"},
        {**json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key())), "kid": "P-384"},
        {**json.loads(OKPAlgorithm.to_jwk(ed448.Ed448PrivateKey.generate().public_key())), "kid": "Ed448"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric", "alg": "HS256"},
        {"kty": ["RSA"], "kid": "list"},
        "text",
        {**SigningKey("good").public, "kid": "good"},
    ]
    async with opened(Source({"keys": entries}), Clock()) as keys:
        assert sorted(keys.keys) == ["good"]
        assert keys.key("good").algorithm_name == "RS256"


async def test_a_set_that_is_known_to_be_the_same_is_not_read_again_and_stays_valid() -> None:
    clock, source, is_same = Clock(), Source(key_set(SigningKey("first"))), False
    async with KeySet(source, "here", refresh_s=3600, stale_s=600, is_unchanged=lambda: is_same, clock=clock) as keys:
        is_same = True
        for _ in range(3):
            clock.now += timedelta(seconds=500)
            await keys._turn()
        assert keys.key("first")
        assert source.reads == 1
        is_same, source.value = False, KeySetError("away")
        await keys._turn()
        # What could not be read is read until it can be.
        is_same, source.value = True, key_set(SigningKey("second"))
        await keys._turn()
        assert keys.keys.keys() == {"second"}


async def test_the_private_part_of_a_key_that_was_published_is_not_kept() -> None:
    key = SigningKey("first")
    entry = {**json.loads(OKPAlgorithm.to_jwk(key.private)), "kid": "first"}
    assert "d" in entry
    async with opened(Source({"keys": [entry]}), Clock()) as keys:
        assert not hasattr(keys.key("first").key, "private_bytes")


async def test_keys_are_valid_for_a_limited_time_after_they_were_read() -> None:
    clock, source = Clock(), Source(key_set(SigningKey("first")))
    async with opened(source, clock) as keys:
        source.value = KeySetError("away")
        clock.now += timedelta(seconds=599)
        assert keys.key("first")
        clock.now += timedelta(seconds=1)
        with pytest.raises(UnauthenticatedError, match="could not be read"):
            keys.key("first")


async def test_a_set_that_was_never_read_says_so() -> None:
    async with opened(Source(KeySetError("away")), Clock()) as keys:
        with pytest.raises(UnauthenticatedError, match="could not be read"):
            keys.key("first")


async def test_an_unknown_key_is_looked_for_once_a_minute() -> None:
    clock, source = Clock(), Source(key_set(SigningKey("first")))
    async with opened(source, clock) as keys:
        with pytest.raises(UnknownKeyError):
            keys.key("second")
        for _ in range(3):
            await keys.look_for("second")
            await keys.look_for("first")
        assert source.reads == 2
        source.value = key_set(SigningKey("second"))
        clock.now += timedelta(seconds=59)
        await keys.look_for("second")
        assert source.reads == 2
        clock.now += timedelta(seconds=1)
        await keys.look_for("second")
        assert source.reads == 3
        assert keys.key("second")


@pytest.mark.parametrize("value", [None, [], {}, {"keys": {}}, {"keys": [{}] * (KEYS_MAX + 1)}, KeySetError("away")])
async def test_what_is_no_key_set_changes_nothing(value: Any) -> None:
    source = Source(key_set(SigningKey("first")))
    async with opened(source, Clock()) as keys:
        before = keys.keys
        source.value = value
        await keys.look_for("second")
        assert source.reads == 2
        assert keys.keys is before


async def test_an_empty_key_set_ends_all_keys() -> None:
    source = Source(key_set(SigningKey("first")))
    async with opened(source, Clock()) as keys:
        source.value = {"keys": []}
        await keys.look_for("second")
        assert not keys.keys


def test_a_file_that_is_no_json_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    for content, says in (
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b" " * (1 << 20) + b"1", "has more"),
    ):
        path.write_bytes(content)
        with pytest.raises(KeySetError, match=says):
            read_file(path)
    with pytest.raises(KeySetError, match="cannot be read"):
        read_file(tmp_path / "missing.json")


async def test_a_set_that_is_read_again_without_a_change_stays_the_same_object() -> None:
    clock, source = Clock(), Source(key_set(SigningKey("first")))
    keys = opened(source, clock)
    assert not keys.is_usable_at(clock.now)
    async with keys:
        before = keys.keys
        clock.now += timedelta(hours=1)
        assert not keys.is_usable_at(clock.now)
        await keys.look_for("second")
        assert (source.reads, keys.is_usable_at(clock.now)) == (2, True)
        assert keys.keys is before
        clock.now += timedelta(hours=1)
        await keys.look_for("first")
        assert source.reads == 2


async def test_a_key_that_is_not_known_is_looked_for_even_after_the_known_ones_have_ended() -> None:
    clock, source = Clock(), Source(key_set(SigningKey("first")))
    async with opened(source, clock) as keys:
        clock.now += timedelta(hours=1)
        with pytest.raises(UnauthenticatedError):
            keys.key("first")
        with pytest.raises(UnknownKeyError):
            keys.key("second")


async def test_a_set_that_cannot_be_read_is_tried_again_sooner() -> None:
    clock, source = Clock(), Source(key_set(SigningKey("first")))
    async with opened(source, clock) as keys:
        assert await keys._turn() is None
        source.value = KeySetError("away")
        assert await keys._turn() == RETRY_S
        source.value = key_set(SigningKey("first"))
        assert await keys._turn() is None


async def test_the_log_says_once_that_a_set_cannot_be_read_and_once_that_it_can_be_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = Source(key_set(SigningKey("first")))
    with every_event_logged():
        async with opened(source, Clock()) as keys:
            for value in (KeySetError("away"), KeySetError("away"), source.value, source.value):
                source.value = value
                await keys._turn()
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == [
        "an issuer has these keys",
        "the keys of an issuer cannot be read",
        "the keys of an issuer can be read again",
    ]
