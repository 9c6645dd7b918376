"""Checks that the requests of several services share."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from mnemon_server.domain.errors import FieldViolation

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1000


def page_size(asked: int, default: int = PAGE_SIZE_DEFAULT) -> int:
    """How many records a page has at most."""
    return min(asked or default, PAGE_SIZE_MAX)


def page_size_violations(asked: int) -> Iterator[FieldViolation]:
    """What is wrong with the size of a page."""
    if asked < 0:
        yield FieldViolation("page_size", "must not be negative; 0 is the default")


def unknown(field: str, number: int, known: Collection[int]) -> Iterable[FieldViolation]:
    """What is wrong with a number that stands for a choice."""
    if number not in known:
        yield FieldViolation(field, f"must be one of {', '.join(map(str, sorted(known)))}; {number} is not known")


def others(found: Sequence[FieldViolation], rest: Iterable[FieldViolation]) -> list[FieldViolation]:
    """What was found, and of the rest what concerns other fields."""
    named = {violation.field for violation in found}
    return [*found, *(violation for violation in rest if violation.field not in named)]
