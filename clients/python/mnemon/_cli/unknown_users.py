"""A note after an answer without records: the user that the command names may be the wrong one, or mistyped."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from mnemon._cli.output import note
from mnemon._cli.session import Session
from mnemon._sync.client import Client
from mnemon._values.documents import Scope
from mnemon.shared.errors import MnemonError

_HAS: Mapping[str, Callable[[Client, str], object]] = {
    "document": lambda client, user: client.documents.count(scope=Scope(user)),
    "memory": lambda client, user: client.memories.count(user=user),
    "statement": lambda client, user: client.semantic.list_page(user=user, page_size=1).memories,
    "event": lambda client, user: client.timeline.summarize(user=user).event_count,
    "fact": lambda client, user: client.facts.list_page(("user", user), subtree=True, page_size=1).facts,
}
"""Whether a user has a record, by its kind; a fact in the namespace of the user's tools."""


def note_unknown_user(session: Session, user: str | None, kind: str = "") -> None:
    """Prints that no record of the kind has the user, if that is so; without a kind, no record of any."""
    asked = [_HAS[kind]] if kind else _HAS.values()
    # The answer has been given, and a note is not worth an error: only parts of the records may be shared with the
    # caller, a quota may be used up, or an index still be loading.
    with suppress(MnemonError):
        if user and not any(has(session.client, user) for has in asked):
            note(f"no {kind or 'record'} has the user {user!r}")
