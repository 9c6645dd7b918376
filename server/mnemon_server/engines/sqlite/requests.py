"""Answers to request ids: what makes a repeated write harmless."""

import json
from typing import Any

import apsw

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import RequestIdReusedError
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.engines.base import TransactionReceipt
from mnemon_server.engines.sqlite.query import fetch

LIFETIME_US = 24 * 3600 * 1_000_000


def stored_answer(connection: apsw.Connection, request: RequestKey | None, now: int) -> dict[str, Any] | None:
    """The first answer to this request; None where it is new.

    Raises:
        RequestIdReusedError: the id was used for another request.
    """
    if request is None:
        return None
    rows = fetch(
        connection,
        "SELECT digest, answer FROM request WHERE id = ? AND expire_time > ?",
        (request.request_id, now),
    )
    if not rows:
        return None
    digest, answer = rows[0]
    if digest != request.digest:
        raise RequestIdReusedError(
            f"request_id {request.request_id!r} was used for a different request; take a new one for each request"
        )
    return json.loads(answer)  # type: ignore[no-any-return]


def store_answer(connection: apsw.Connection, request: RequestKey | None, answer: dict[str, Any], now: int) -> None:
    """Keeps the answer for the lifetime of a request id."""
    if request is not None:
        connection.execute(
            "INSERT OR REPLACE INTO request (id, digest, answer, expire_time) VALUES (?, ?, ?, ?)",
            (request.request_id, request.digest, json.dumps(answer), now + LIFETIME_US),
        )


def forget_expired(connection: apsw.Connection, now: int) -> None:
    """Drops a bounded number of answers whose lifetime is over."""
    connection.execute(
        "DELETE FROM request WHERE id IN (SELECT id FROM request WHERE expire_time <= ? LIMIT 1000)", (now,)
    )


def receipt_to_answer(receipt: WriteReceipt) -> dict[str, Any]:
    """A write receipt as JSON values."""
    return {
        "id": receipt.id,
        "outcome": receipt.outcome.value,
        "revision": receipt.revision,
        "commit_time": to_microseconds(receipt.commit_time),
        "sequence": receipt.sequence,
    }


def receipt_from_answer(answer: dict[str, Any]) -> WriteReceipt:
    """The receipt that `receipt_to_answer` wrote, marked as replayed."""
    return WriteReceipt(
        id=answer["id"],
        outcome=WriteOutcome(answer["outcome"]),
        revision=answer["revision"],
        commit_time=from_microseconds(answer["commit_time"]),
        replayed=True,
        sequence=answer["sequence"],
    )


def bulk_to_answer(receipt: BulkDeleteReceipt) -> dict[str, Any]:
    """A bulk receipt as JSON values."""
    return {"deleted_count": receipt.deleted_count, "sequence": receipt.sequence}


def bulk_from_answer(answer: dict[str, Any]) -> BulkDeleteReceipt:
    """The receipt that `bulk_to_answer` wrote, marked as replayed."""
    return BulkDeleteReceipt(answer["deleted_count"], replayed=True, sequence=answer["sequence"])


def transaction_to_answer(receipt: TransactionReceipt) -> dict[str, Any]:
    """A transaction's receipt as JSON values."""
    return {
        "answer": receipt.answer,
        "commit_time": to_microseconds(receipt.commit_time),
        "sequence": receipt.sequence,
    }


def transaction_from_answer(answer: dict[str, Any]) -> TransactionReceipt:
    """The receipt that `transaction_to_answer` wrote, marked as replayed."""
    return TransactionReceipt(
        answer=answer["answer"],
        commit_time=from_microseconds(answer["commit_time"]),
        sequence=answer["sequence"],
        replayed=True,
    )
