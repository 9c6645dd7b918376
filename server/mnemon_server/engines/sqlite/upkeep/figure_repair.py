"""Repairs numbers from imported archives that are too large to be incremented or to fit into a message.

A record whose revision is at the end of 64 bits accepts no further change; the same applies to the version of the merge
rules. A decision with counts above 32 bits cannot be sent, and neither can any list that contains it.
"""

import json
import logging
from typing import Any

import apsw

from mnemon_server.domain.archive import FIGURE_MAX
from mnemon_server.domain.collections import COLLECTIONS, DECISIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.records import COUNT_MAX, DURATION_MAX, Scope
from mnemon_server.engines.sqlite import values
from mnemon_server.engines.sqlite.query import fetch

# ruff: noqa: S608 - table names are constants

_RULES_VERSION = "rules.version"
_COUNTS = frozenset({"conflict_count", "content_length", "keywords_count", "deduplicated_count"})
_TIME_DELTA = "time_delta_us"
_DECISION = (
    "SELECT id, user, household, persona, agent, project, hidden, candidate_id, existing_id, result_id"
    f" FROM {DECISIONS.name} WHERE position = ?"
)

log = logging.getLogger(__name__)


def repair_figures(connection: apsw.Connection) -> None:
    """Reduces such numbers to the largest valid ones, within the caller's transaction."""
    for collection in COLLECTIONS:
        _repair_revisions(connection, collection.name)
    _repair_rules_version(connection)
    _repair_decisions(connection)


def _repair_revisions(connection: apsw.Connection, table: str) -> None:
    statement = f"UPDATE {table} SET revision = ?1 WHERE revision > ?1 RETURNING id"
    for (record_id,) in fetch(connection, statement, (FIGURE_MAX,)):
        log.warning("the revision of %r in %s was too large; it is now %d", record_id, table, FIGURE_MAX)


def _repair_rules_version(connection: apsw.Connection) -> None:
    stamp = values.stored_value(connection, _RULES_VERSION)
    version, _, digest = (stamp or "0").partition(" ")
    if version.isdigit() and int(version) > FIGURE_MAX:
        values.set_value(connection, _RULES_VERSION, f"{FIGURE_MAX} {digest}")
        log.warning("the version of the merge rules, %s, was too large; it is now %d", version, FIGURE_MAX)


def _repair_decisions(connection: apsw.Connection) -> None:
    for position, content in fetch(connection, f"SELECT position, CAST(content AS BLOB) FROM {DECISIONS.name}"):
        try:
            decoded = json.loads(content)
        except ValueError:
            continue  # reading the record reports the damage
        if (bounded := _bounded(decoded)) != decoded:
            _replace_decision(connection, position, json.dumps(bounded, ensure_ascii=False, separators=(",", ":")))


def _replace_decision(connection: apsw.Connection, position: int, text: str) -> None:
    [(record_id, *scope, hidden, candidate, existing, result)] = fetch(connection, _DECISION, (position,))
    fields = {"candidate_id": candidate, "existing_id": existing, "result_id": result}
    document = Document(record_id, text, scope=Scope(*scope), fields=fields, hidden=bool(hidden))
    statement = f"UPDATE {DECISIONS.name} SET content = ?, digest = ? WHERE position = ?"
    connection.execute(statement, (text, document_digest(document), position))
    log.warning("the decision %r had counts too large for a message; they were reduced to the maximum", record_id)


def _bounded(value: Any, key: str = "") -> Any:
    """The same JSON, with counts and durations reduced to the maximum of a message field."""
    match value:
        case dict():
            return {name: _bounded(item, name) for name, item in value.items()}
        case list():
            return [_bounded(item) for item in value]
        case int() | float() if key in _COUNTS:
            return min(max(value, 0), COUNT_MAX)
        case int() | float() if key == _TIME_DELTA:
            return min(max(value, 0), int(DURATION_MAX.total_seconds()) * 1_000_000)
    return value
