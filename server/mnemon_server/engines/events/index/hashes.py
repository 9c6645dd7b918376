"""The two hashes for event look-ups: of an event's id, and of its key, the fields that identify duplicates."""

import hashlib
from struct import Struct

_HASH_BYTES = 8
_LENGTH = Struct("<I").pack
_TIME_AND_LENGTH = Struct("<IqI").pack
_TIME_BYTES, _DIGEST_BYTES = 8, 32


def id_hash(event_id: str) -> int:
    """64 bits of an event's id: BLAKE2b with a digest of 8 bytes over the id in UTF-8, read little-endian."""
    return int.from_bytes(hashlib.blake2b(event_id.encode(), digest_size=_HASH_BYTES).digest(), "little")


def key_hash(user: str, persona: str, event_type: str, time_us: int, digest: bytes) -> int:
    """64 bits of an event's key without the household: the first 8 bytes of a SHA-256, read little-endian.

    Lookups must compare the household as well. It is not hashed, so that segments of earlier releases stay valid.

    The input is user, persona, event type (UTF-8), the event's time (8 bytes, signed, little-endian, microseconds since
    1970 UTC) and the `content_digest` of its content, each preceded by its length in bytes (4 bytes, little-endian).
    """
    # Unrolled, because it is called for every event, and a loop over the parts takes three times as long.
    whose, speaker, kind = user.encode(), persona.encode(), event_type.encode()
    framed = b"".join(
        (
            _LENGTH(len(whose)),
            whose,
            _LENGTH(len(speaker)),
            speaker,
            _LENGTH(len(kind)),
            kind,
            _TIME_AND_LENGTH(_TIME_BYTES, time_us, _DIGEST_BYTES),
            digest,
        )
    )
    return int.from_bytes(hashlib.sha256(framed).digest()[:_HASH_BYTES], "little")
