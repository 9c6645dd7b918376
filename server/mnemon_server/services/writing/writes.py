"""Helpers for all writes: request keys, actions that run once, and acknowledgement."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mnemon_server.domain.encoding import request_digest
from mnemon_server.domain.errors import BackendConnectionError, MnemonError
from mnemon_server.domain.records import AckLevel, RequestKey, WriteReceipt
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.engine_futures import completion
from mnemon_server.services.search.index_applier import IndexApplier


def request_key(request_id: str, *parts: Any) -> RequestKey | None:
    """The key of a request with the contents `parts`; None if the request has no id."""
    return RequestKey(request_id, request_digest(*parts)) if request_id else None


async def done_once(
    vault: Vault, request: RequestKey | None, action: Callable[[], Awaitable[str]]
) -> TransactionReceipt:
    """Runs an action that is not a transaction, such as writing a file, and stores its answer.

    A replay gets the stored answer, and does not run the action again.
    """
    if (receipt := await replay(vault, request)) is not None:
        return receipt
    answer = await action()
    return await completion(vault.transact(lambda _: answer, request=request))


async def replay(vault: Vault, request: RequestKey | None) -> TransactionReceipt | None:
    """The answer to an earlier request with this key, if any.

    Raises:
        RequestIdReusedError: the id was used for another request.
    """
    if request is None:
        return None
    try:
        return await completion(vault.transact(_refuse_new, request=request))
    except _NewRequestError:
        return None


class _NewRequestError(MnemonError):
    """The request is not a replay. This is the usual case; as a MnemonError, it is not logged."""


def _refuse_new(tx: VaultTransaction) -> str:
    raise _NewRequestError


async def acknowledge(applier: IndexApplier | None, ack: AckLevel, sequence: int) -> None:
    """Waits until a committed change may be acknowledged at this level.

    Raises:
        BackendConnectionError: the change is stored, but the vector index cannot be reached.
    """
    if ack is AckLevel.SEARCHABLE and applier is not None:
        try:
            await completion(applier.applied(sequence), "index")
        except BackendConnectionError as error:
            raise BackendConnectionError(
                f"the change is stored, but not yet in the vector database: {error}"
            ) from error


async def acknowledge_each(
    applier: IndexApplier | None, levels: Sequence[AckLevel], results: Sequence[WriteReceipt | MnemonError]
) -> list[WriteReceipt | MnemonError]:
    """The results of several changes, once each may be acknowledged at its level; an error if one cannot be."""
    acknowledged: list[WriteReceipt | MnemonError] = []
    for level, result in zip(levels, results, strict=True):
        try:
            if not isinstance(result, MnemonError):
                await acknowledge(applier, level, result.sequence)
            acknowledged.append(result)
        except MnemonError as error:
            acknowledged.append(error)
    return acknowledged
