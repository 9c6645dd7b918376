"""The interface of an operator's endpoint, which runs a tool."""

from collections.abc import Mapping
from typing import Any, Protocol


class ToolEndpoint(Protocol):
    """The endpoint that runs an operator's tool; calls may run concurrently."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], namespace: tuple[str, ...], request_id: str, token: str = ""
    ) -> str:
        """Calls a tool, and returns its answer: at most 1 MiB of UTF-8.

        Args:
            name: the name of the tool.
            arguments: JSON values that satisfy the tool's schema.
            namespace: the namespace of the context; empty if it has none.
            request_id: the id of the request; empty if it has none.
            token: says who calls; empty if the endpoint is not told.

        Raises:
            ToolUnreachableError: the endpoint cannot be reached, or does not answer within its timeout.
            ToolFailedError: it answers with an error, or with an invalid answer.

        Neither error message contains the endpoint's answer.
        """

    async def aclose(self) -> None:
        """Closes its connections. No call may be in flight."""
