"""Where records come from, and how far they are trusted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, Operator
from mnemon_server.domain.records import Scope


class Origin(StrEnum):
    """Where a record comes from, the most trusted first."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    IMPORT = "import"
    WEB = "web"


_TRUST = {origin.value: place for place, origin in enumerate(reversed(Origin))}
NAMES = ", ".join(map(repr, map(str, Origin)))


def is_origin(text: str) -> bool:
    """Whether a text names an origin."""
    return text in _TRUST


def trust(origin: str) -> int:
    """The trust in an origin; higher is more trusted. An empty origin counts as an agent."""
    return _TRUST[origin or Origin.AGENT]


def may_settle(candidate: Scope, existing: Scope) -> bool:
    """Whether a new statement may confirm one that says the same, and replace or change one that it contradicts.

    Statements from a tool, an import or the web never change more trusted ones. Agents count as their users.
    """
    return trust(candidate.origin) >= min(trust(existing.origin), trust(Origin.AGENT))


class Provenance(NamedTuple):
    """An origin, empty for records without one; without a name, it stands for all names."""

    origin: str
    name: str = ""

    @property
    def text(self) -> str:
        """The source as written in error messages, such as "the origin 'web' with the name 'example.com'"."""
        return f"the origin {self.origin!r}" + (f" with the name {self.name!r}" if self.name else "")


def less_trusted(least: Origin) -> tuple[Provenance, ...]:
    """The less trusted origins."""
    return tuple(Provenance(origin) for origin in ("", *map(str, Origin)) if trust(origin) < trust(least))


def any_from(sources: Sequence[Provenance]) -> Expression:
    """Selects records from these sources."""
    parts: list[Expression] = []
    if whole := tuple(origin for origin, name in sources if not name):
        parts.append(Condition("origin", Operator.IN, whole))
    for origin in dict.fromkeys(origin for origin, name in sources if name):
        names = tuple(each.name for each in sources if each.origin == origin and each.name)
        parts.append(AllOf((Condition("origin", Operator.EQ, (origin,)), Condition("origin_name", Operator.IN, names))))
    return AnyOf(tuple(parts))


def not_from(sources: Sequence[Provenance]) -> Expression | None:
    """Excludes records from these sources; None for an empty list."""
    return NoneOf((any_from(sources),)) if sources else None


def least_trusted(scopes: Iterable[Scope]) -> Scope:
    """The scope with the least trusted origin; the first one, if several are equal. At least one must be given."""
    return min(scopes, key=lambda scope: trust(scope.origin))


def with_origin(scope: Scope, source: Scope) -> Scope:
    """A scope with the origin of another one."""
    return replace(scope, origin=source.origin, origin_name=source.origin_name)


def without_origin(scope: Scope) -> Scope:
    """The scope with only its owner fields."""
    return with_origin(scope, Scope()) if scope.origin or scope.origin_name else scope


def is_sound_origin(scope: Scope) -> bool:
    """Whether `origin_violations` finds nothing."""
    return scope.origin in _TRUST if scope.origin else not scope.origin_name


def origin_violations(scope: Scope, field: str = "scope") -> Iterator[FieldViolation]:
    """The violations in the origin of a record."""
    if scope.origin and not is_origin(scope.origin):
        yield FieldViolation(f"{field}.origin", f"must be one of {NAMES}, or empty")
    if scope.origin_name and not scope.origin:
        yield FieldViolation(f"{field}.origin_name", f"names an origin, so {field}.origin must be one of {NAMES}")
