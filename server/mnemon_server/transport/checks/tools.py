"""Checks of the tool service's requests.

What a call may say, the service checks itself. A request is turned into a value first; only where there is none it is
looked at for everything that is wrong.
"""

from collections.abc import Iterator

from mnemon.v1 import tools_pb2 as pb

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.tools import CallTool, ExecuteText
from mnemon_server.domain.validation import metadata_violations, refuse, request_id_violations
from mnemon_server.transport.checks.facts import json_violations
from mnemon_server.transport.convert import tools as convert
from mnemon_server.transport.convert.shared.reading import others, unknown, unset_values
from mnemon_server.wire.values import metadata_from_pb


def checked_call(request: pb.CallToolRequest) -> CallTool:
    """The call; raises InvalidArgumentError with everything that is wrong."""
    try:
        return convert.call_from_pb(request)
    except ValueError:
        refuse([*json_violations("arguments", request.arguments), *_violations(request)])
        raise


def checked_execute(request: pb.ExecuteTextRequest) -> ExecuteText:
    """The text whose calls are to be run; likewise."""
    try:
        return convert.execute_from_pb(request)
    except ValueError:
        refuse(_violations(request))
        raise


def _violations(request: pb.CallToolRequest | pb.ExecuteTextRequest) -> list[FieldViolation]:
    """What is wrong with what both kinds of request have."""
    found = [
        *json_violations("context.config", request.context.config),
        *unset_values("context.metadata", request.context.metadata),
        *unknown("response_format", request.response_format, convert.RESPONSE_FORMATS),
    ]
    return others(found, _value_violations(request))


def _value_violations(request: pb.CallToolRequest | pb.ExecuteTextRequest) -> Iterator[FieldViolation]:
    """What is wrong with those values that are some."""
    metadata = {key: value for key, value in metadata_from_pb(request.context.metadata).items() if value is not None}
    yield from metadata_violations(metadata, "context.metadata")
    yield from request_id_violations(request.request_id)
