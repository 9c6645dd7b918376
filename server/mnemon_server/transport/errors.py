"""Errors that only a transport can have; the rest of the tree is in `domain/errors.py`."""

from mnemon_server.domain.errors import ErrorReason, MnemonError, NotServingError


class MalformedMessageError(MnemonError):
    """The bytes are not a message of the method."""

    reason = ErrorReason.MALFORMED_MESSAGE


class MessageTooLargeError(MnemonError):
    """A request or an answer is larger than the server allows."""

    reason = ErrorReason.MESSAGE_TOO_LARGE


class DeadlineExceededError(MnemonError):
    """The call took longer than the server allows if the client sets no deadline."""

    reason = ErrorReason.DEADLINE_EXCEEDED


class UnimplementedError(MnemonError):
    """The server has no such method."""

    reason = ErrorReason.UNIMPLEMENTED


class NotBegunError(NotServingError):
    """The server is starting and has not begun the call, so any call may be retried."""
