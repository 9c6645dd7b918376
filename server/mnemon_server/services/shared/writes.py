"""What all writes share: the identity of a request, and when one is acknowledged."""

from typing import Any

from mnemon_server.domain.encoding import request_digest
from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.records import AckLevel, RequestKey
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.shared.completions import completion


def request_key(request_id: str, *parts: Any) -> RequestKey | None:
    """The identity of a request that asks for `parts`; None where it has no id."""
    return RequestKey(request_id, request_digest(*parts)) if request_id else None


async def acknowledge(applier: IndexApplier | None, ack: AckLevel, sequence: int) -> None:
    """Returns when a committed change may be acknowledged.

    Raises:
        BackendConnectionError: the change is stored, but the vector index cannot be reached.
    """
    if ack is AckLevel.SEARCHABLE and applier is not None:
        try:
            await completion(applier.applied(sequence))
        except BackendConnectionError as error:
            raise BackendConnectionError(
                f"the change is stored, but not yet in the vector database: {error}"
            ) from error
