"""Logs errors that a client must not read, under the incident id that the client gets instead."""

import structlog

from mnemon_server.transport.status import Failure

_log = structlog.get_logger()


def report(error: BaseException) -> Failure:
    """The error as a client may see it; if it is an incident, its text goes to the log."""
    failure = Failure.of(error)
    if failure.incident_id:
        _log.error("incident", incident_id=failure.incident_id, reason=failure.reason, exc_info=error)
    return failure
