"""Errors that a client may not read go to the log here, under the incident id that the client gets instead."""

import structlog

from mnemon_server.transport.status import Failure

_log = structlog.get_logger()


def report(error: BaseException) -> Failure:
    """The error as a client may see it; its text is in the log where it is an incident."""
    failure = Failure.of(error)
    if failure.incident_id:
        _log.error("incident", incident_id=failure.incident_id, reason=failure.reason, exc_info=error)
    return failure
