"""What is wrong with a request to erase."""

from collections.abc import Iterator

from mnemon_server.domain.documents import DocumentFilter
from mnemon_server.domain.erasure import EraseFilter, ErasureRequest
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import EventSelection
from mnemon_server.domain.facts import FactFilter
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.memories import MemoryFilter
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticFilter
from mnemon_server.domain.validation import SCOPE_BYTES_MAX, request_id_violations, text_violations
from mnemon_server.services.documents import filters as documents
from mnemon_server.services.events.checks import selection_violations
from mnemon_server.services.facts import checks as facts
from mnemon_server.services.memories import filters as memories
from mnemon_server.services.semantic import filters as semantic

_REFUSED = {
    RecordKind.RULE: "must not be RULE: rules belong to no one; delete them with DeleteRule",
    RecordKind.DECISION: "must not be DECISION: decisions are erased with the statements that they are about",
}


def erasure_violations(request: ErasureRequest) -> Iterator[FieldViolation]:
    """What is wrong with a request."""
    target = request.target
    yield from request_id_violations(request.request_id)
    if target.where is not None:
        yield from _filter_violations(target.where)
        if request.revoke_keys:
            yield FieldViolation(
                "revoke_keys", "must be left out with a filter: keys are bound to users and namespaces"
            )
    elif target.namespace is None and not target.user:
        yield FieldViolation("target", "is required: set user, namespace or filter")
    else:
        # A blank user, whom an earlier version stored, can be erased.
        yield from text_violations(target.user, "user", SCOPE_BYTES_MAX)


def _filter_violations(where: EraseFilter) -> Iterator[FieldViolation]:
    scope, expression = where.scope, where.expression
    if scope == Scope() and expression is None:
        yield FieldViolation("filter", "must have a scope or a filter: it would mean every record of its kind")
    match where.kind:
        case RecordKind.DOCUMENT:
            yield from documents.filter_violations(DocumentFilter(scope=scope, expression=expression))
        case RecordKind.MEMORY:
            yield from memories.filter_violations(MemoryFilter(scope=scope, expression=expression))
        case RecordKind.SEMANTIC:
            yield from semantic.filter_violations(SemanticFilter(scope=scope, expression=expression))
        case RecordKind.EVENT:
            yield from selection_violations(EventSelection(scope=scope, expression=expression))
        case RecordKind.FACT:
            if scope != Scope():
                yield FieldViolation("filter.scope", "must be empty for facts, which have no scope; use a namespace")
            yield from facts.filter_violations(FactFilter(namespace=None, subtree=True, where=expression))
        case _:
            yield FieldViolation("filter.kind", _REFUSED[where.kind])
