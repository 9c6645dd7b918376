"""Stores the answers to request ids, so that a repeated write has no effect."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

import apsw

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import RequestIdReusedError
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.vault import TransactionReceipt
from mnemon_server.engines.sqlite.query import fetch

LIFETIME_US = 24 * 3600 * 1_000_000

StoredAnswer: TypeAlias = tuple[bytes, dict[str, Any]]
"""The digest of the request, and the answer as JSON values."""


def stored_answer(connection: apsw.Connection, request: RequestKey | None, now: int) -> dict[str, Any] | None:
    """The stored answer to this request; None if the request is new.

    Raises:
        RequestIdReusedError: the id was used for another request.
    """
    if request is None:
        return None
    rows = fetch(
        connection,
        "SELECT digest, answer FROM request WHERE id = ? AND expire_time > ?",
        (request.stored_id, now),
    )
    if not rows:
        return None
    digest, answer = rows[0]
    return checked_answer(request, (digest, json.loads(answer)))


def is_answered(connection: apsw.Connection, request_id: str, now: int) -> bool:
    """Whether an answer is stored for this request id."""
    statement = "SELECT count(*) FROM request WHERE id = ? AND expire_time > ?"
    return bool(fetch(connection, statement, (request_id, now))[0][0])


def stored_answers(connection: apsw.Connection, asked: Sequence[RequestKey], now: int) -> dict[str, StoredAnswer]:
    """The stored answers to these requests, by request id, without new ones."""
    if not asked:
        return {}
    statement = "SELECT id, digest, answer FROM request WHERE id IN (SELECT value FROM carray(?)) AND expire_time > ?"
    rows = fetch(connection, statement, (apsw.carray(tuple(request.stored_id for request in asked)), now))
    return {request_id: (digest, json.loads(answer)) for request_id, digest, answer in rows}


def checked_answer(request: RequestKey, answer: StoredAnswer) -> dict[str, Any]:
    """The answer, if it belongs to this request.

    Raises:
        RequestIdReusedError: it belongs to another request.
    """
    digest, values = answer
    if digest not in (request.digest, request.earlier_digest):
        raise RequestIdReusedError(
            f"request_id {request.request_id!r} was used for a different request; each request needs its own"
        )
    return values


def store_answer(connection: apsw.Connection, request: RequestKey | None, answer: dict[str, Any], now: int) -> None:
    """Stores the answer for the lifetime of a request id."""
    if request is not None:
        store_answers(connection, [(request, answer)], now)


def store_answers(connection: apsw.Connection, answers: Sequence[tuple[RequestKey, dict[str, Any]]], now: int) -> None:
    """Stores answers for the lifetime of their request ids."""
    connection.executemany(
        "INSERT OR REPLACE INTO request (id, digest, answer, expire_time) VALUES (?, ?, ?, ?)",
        [(request.stored_id, request.digest, json.dumps(answer), now + LIFETIME_US) for request, answer in answers],
    )


def answers_after(connection: apsw.Connection, after: str, limit: int) -> list[tuple[str, str]]:
    """Up to `limit` stored answers by ascending id: the id, and the answer as JSON."""
    return fetch(connection, "SELECT id, answer FROM request WHERE id > ? ORDER BY id LIMIT ?", (after, limit))


def forget(connection: apsw.Connection, stored_ids: Sequence[str]) -> int:
    """Deletes the answers with these ids; returns how many there were."""
    connection.executemany("DELETE FROM request WHERE id = ?", [(each,) for each in stored_ids])
    return len(stored_ids)


def forget_expired(connection: apsw.Connection, now: int) -> None:
    """Deletes a limited number of answers whose lifetime has passed."""
    connection.execute(
        "DELETE FROM request WHERE id IN (SELECT id FROM request WHERE expire_time <= ? LIMIT 1000)", (now,)
    )


Receipt: TypeAlias = WriteReceipt | BulkDeleteReceipt | TransactionReceipt
R = TypeVar("R", WriteReceipt, BulkDeleteReceipt, TransactionReceipt)

_STORED = {
    kind: [each.name for each in fields(kind) if each.name != "replayed"]
    for kind in (WriteReceipt, BulkDeleteReceipt, TransactionReceipt)
}
"""The fields that are stored of each kind of receipt."""
_DECODERS: Mapping[str, Callable[[Any], Any]] = {"outcome": WriteOutcome, "commit_time": from_microseconds}


def receipt_to_answer(receipt: Receipt) -> dict[str, Any]:
    """A receipt as JSON values."""
    answer = {name: getattr(receipt, name) for name in _STORED[type(receipt)]}
    if "commit_time" in answer:
        answer["commit_time"] = to_microseconds(answer["commit_time"])
    return answer


def receipt_from_answer(kind: type[R], answer: dict[str, Any]) -> R:
    """The receipt that `receipt_to_answer` wrote, marked as replayed."""
    values = {name: _DECODERS[name](value) if name in _DECODERS else value for name, value in answer.items()}
    return kind(**values, replayed=True)
