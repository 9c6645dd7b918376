"""Names in credentials that the server does not know, or not yet."""

from collections.abc import Awaitable, Callable

from mnemon_server.domain.errors import MnemonError


class UnknownError(Exception):
    """Whether a credential is valid depends on something that is not in memory."""

    def __init__(self, refusal: MnemonError, look: Callable[[], Awaitable[None]]) -> None:
        """`look` looks for it, once; if it is not found, the error is `refusal`."""
        self.refusal, self.look = refusal, look
        super().__init__(str(refusal))
