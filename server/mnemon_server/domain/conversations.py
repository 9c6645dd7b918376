"""Conversations, whose messages are events of the timeline."""

from datetime import datetime
from typing import NamedTuple

from mnemon_server.domain.records import Scope


class Conversation(NamedTuple):
    """A conversation of a user, with what its events say about it."""

    conversation_id: str
    scope: Scope
    """Of its events; the same id in another scope is another conversation."""
    event_count: int
    """The number of its events that were asked for."""
    first_time: datetime
    last_time: datetime
    last_sequence: int
    """The position of its newest event in storage order."""
