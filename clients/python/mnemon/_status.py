"""Turns the gRPC status of a call, or of one item of a stream, into an exception."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from mnemon.shared import errors
from mnemon.v1 import common_pb2, errors_pb2

REQUEST_ID_METADATA = "x-request-id"

_BY_CODE: dict[grpc.StatusCode, type[errors.MnemonError]] = {
    # Of two with the same code, the first one is what a server says.
    **{grpc.StatusCode[each.code]: each for each in reversed(errors.MnemonError.__subclasses__())},
    grpc.StatusCode.UNKNOWN: errors.InternalError,
}

_TOO_LARGE = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")
"""In the text by which gRPC itself refuses a message, before a server of any language could give a reason."""
_EXPRESSION = re.compile(
    r"\bfilter\.filter(?:\.(?:all_of|any_of|none_of)\.filters(?:\[\d+\])?)*(?:\.condition(?:\.\w+(?:\[\d+\])?)?)?"
    r'(?:: "([\w.-]+)")?'
)
"""The path of a part of an expression in a message, and the field of the record that it compares."""
_ARGUMENTS = {
    re.compile(r"\bfilter(?=: must not be empty)|(?<=`)filter(?=`)"): "where",
    re.compile(r"\b(?:filter\.)?(created|reinforced)\.start_time\b"): r"\1_from",
    re.compile(r"\b(?:filter\.)?(created|reinforced)\.end_time\b"): r"\1_to",
    re.compile(r"\b(?:range|time)\.start_time\b"): "since",
    re.compile(r"\b(?:range|time)\.end_time\b"): "until",
    re.compile(r"\bafter_message_id\b"): "after",
    re.compile(r"\bcursor(?=: must )"): "since",
}
"""The fields of requests that are arguments of another name here."""

_CODES_BY_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


@dataclass
class _Details:
    """The details of a google.rpc.Status."""

    reason: str = ""
    incident_id: str = ""
    violations: list[errors.FieldViolation] = field(default_factory=list)
    retry_after: float | None = None


class StreamLostError(Exception):
    """A stream ended that should have gone on."""

    def __init__(self, error: errors.MnemonError) -> None:
        super().__init__(str(error))
        self.error = error


def error_from_call(error: grpc.RpcError, *, address: str, timeout: float | None = None) -> errors.MnemonError:
    """The exception for a failed call; `address` and `timeout` (seconds) are for the message if no server answered."""
    code: grpc.StatusCode = error.code()
    details, text = _details_of(error), error.details() or ""
    if not details.reason and (sizes := _TOO_LARGE.search(text)):
        details.reason, text = "MESSAGE_TOO_LARGE", _too_large(*map(int, sizes.groups()))
    if _is_dropped(code, error.details()):
        kind: type[errors.MnemonError] = errors.ServerUnreachableError
    else:
        kind = _class_of(code, details.reason)
    return kind(
        _message(code, as_arguments(text), details.reason, address, timeout),
        code=code.name,
        reason=details.reason,
        request_id=_request_id_of(error),
        violations=details.violations,
        retry_after=details.retry_after,
        incident_id=details.incident_id,
    )


def _too_large(size: int, most: int) -> str:
    return (
        f"the message has {size:,} bytes, and {most:,} are the most that is received: split it into several documents "
        "or calls, or let the server take larger ones (its setting max_message_mib)"
    )


def is_busy(error: errors.MnemonError) -> bool:
    """Whether the call was refused before it began, and waiting helps."""
    return error.reason == "TOO_MANY_REQUESTS" or (error.reason == "QUOTA_EXCEEDED" and error.retry_after is not None)


def late(address: str, timeout: float | None) -> errors.DeadlineExceededError:
    """The error of a call that gets no answer within its deadline, in seconds."""
    message = _message(grpc.StatusCode.DEADLINE_EXCEEDED, "", "", address, timeout)
    return errors.DeadlineExceededError(message)


def error_from_item(item: common_pb2.ItemError) -> errors.MnemonError:
    """The exception that the single call would have raised for one item of a stream."""
    code = _CODES_BY_NUMBER.get(item.code, grpc.StatusCode.UNKNOWN)
    reason = _reason_name(item.reason)
    return _class_of(code, reason)(
        item.message,
        code=code.name,
        reason=reason,
        violations=[errors.FieldViolation(each.field, each.description) for each in item.violations],
        retry_after=item.retry_delay.ToTimedelta().total_seconds() if item.HasField("retry_delay") else None,
        incident_id=item.metadata.get("incident_id", ""),
    )


def error_from_start(message: str, *, reason: str) -> errors.MnemonError:
    """The exception for a server inside this program that cannot start. `reason` is the name of the reason."""
    return _named_as(reason, errors.ConfigurationError)(message, reason=reason)


def _is_dropped(code: grpc.StatusCode, text: str | None) -> bool:
    """Whether a server dropped the call as it shut down. A call that is cancelled on this side has another text."""
    return code is grpc.StatusCode.CANCELLED and text == code.name


def _class_of(code: grpc.StatusCode, reason: str) -> type[errors.MnemonError]:
    general = _BY_CODE.get(code, errors.MnemonError)
    special = _named_as(reason, general)
    if code is grpc.StatusCode.UNAVAILABLE and not reason:
        return errors.ServerUnreachableError
    # The code decides what a caller may do, so a reason narrows it and never changes it.
    return special if issubclass(special, general) else general


def _named_as(reason: str, general: type[errors.MnemonError]) -> type[errors.MnemonError]:
    """The class of a reason, which is named as it: REVISION_MISMATCH is a RevisionMismatchError."""
    found = getattr(errors, f"{reason.title().replace('_', '')}Error", general)
    return general if found in _BY_CODE.values() else found


def _message(code: grpc.StatusCode, text: str, reason: str, address: str, timeout: float | None) -> str:
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return f"{text}; the client sends api_key=, otherwise token=, otherwise the variable MNEMON_API_KEY"
    if reason:
        return text
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"no server answers at {address}: {text}"
    if _is_dropped(code, text):
        return f"{address} ended the call before it was answered, as a server does that shuts down"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout is not None:
        return f"no answer from {address} within {timeout:g} s; a larger timeout= waits longer"
    return text or code.name


def _details_of(error: grpc.RpcError) -> _Details:
    found = _Details()
    try:
        status: status_pb2.Status | None = rpc_status.from_call(error)
    except ValueError:
        # The details contradict the status, as when a proxy rewrites it; then the status decides.
        return found
    for packed in status.details if status else ():
        _read_detail(packed, found)
    return found


def _read_detail(packed: any_pb2.Any, found: _Details) -> None:
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    if packed.Unpack(info):
        found.reason, found.incident_id = info.reason, info.metadata.get("incident_id", "")
    elif packed.Unpack(bad):
        for each in bad.field_violations:
            name, _, description = as_arguments(f"{each.field}: {each.description}").partition(": ")
            found.violations.append(errors.FieldViolation(name, description))
    elif packed.Unpack(retry):
        found.retry_after = retry.retry_delay.ToTimedelta().total_seconds()


def as_arguments(text: str) -> str:
    """The text, in which fields of requests are named as the arguments that they come from."""
    text = _EXPRESSION.sub(lambda found: f"where.{found[1]}" if found[1] else "where", text)
    for field_name, argument in _ARGUMENTS.items():
        text = field_name.sub(argument, text)
    return text


def _reason_name(reason: int) -> str:
    if reason not in errors_pb2.ErrorReason.values():
        return str(reason)
    return errors_pb2.ErrorReason.Name(errors_pb2.ErrorReason.ValueType(reason)).removeprefix("ERROR_REASON_")


def _request_id_of(error: grpc.RpcError) -> str:
    # Plain pairs in one kind of call, named pairs in the other.
    pairs: Iterable[Any] = error.trailing_metadata() or ()
    return next((value for name, value in pairs if name == REQUEST_ID_METADATA and isinstance(value, str)), "")
