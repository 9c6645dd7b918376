"""Checks the types of the arguments of methods by their annotations.

Without the check, a wrong type would end in an error of protobuf, which does not say which argument it is about.
"""

import functools
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from difflib import get_close_matches
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

from mnemon._values.documents import Scope
from mnemon.shared.errors import InvalidArgumentError

_Method = TypeVar("_Method", bound=Callable[..., Any])

_KINDS: Mapping[object, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    Scope: ((Scope,), 'a Scope, such as Scope(user="ada")'),
    Iterable: ((Iterable,), "several values, such as a list"),
    AsyncIterable: ((Iterable, AsyncIterable), "several values, such as a list"),
}
_INT64_MAX = 2**63 - 1


def plain(given: Any) -> Any:
    """A number or a boolean of NumPy, or of a library like it, as Python's own; everything else as it is."""
    if isinstance(given, bool | int | float | str) or getattr(given, "shape", None) != ():
        return given
    # A time would become a number of nanoseconds.
    is_time = getattr(getattr(given, "dtype", None), "kind", "") in ("m", "M")
    return given if is_time else given.item()


def checked(method: _Method) -> _Method:
    """The method, which raises InvalidArgumentError, with the name of the argument, for one of a wrong type."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    kinds = {each.name: kind for each in parameters if (kind := _kind_of(each.annotation))}
    names = [each.name for each in parameters]

    def check(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        for name, given in named.items():
            # Most are of the exact type, and cost no more; whole numbers may be too large.
            if name in kinds and (type(given) is not kinds[name][0] or type(given) is int or name == "timeout"):
                named[name] = _fitting(name, given, *kinds[name])
        return tuple(
            _fitting(name, given, *kinds[name]) if name in kinds else given
            for name, given in zip(names, args, strict=False)
        )

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        return method(self, *check(args, named), *args[len(names) :], **named)

    @functools.wraps(method)
    async def call_async(self: Any, *args: Any, **named: Any) -> Any:
        return await method(self, *check(args, named), *args[len(names) :], **named)

    return call_async if inspect.iscoroutinefunction(method) else call  # type: ignore[return-value] # the same signature


def check_flag(field: str, given: Any) -> Any:
    """A boolean as Python's own. Raises InvalidArgumentError for anything else."""
    return _fitting(field, given, bool, is_optional=False)


def check_number(field: str, given: Any) -> Any:
    """A number as Python's own. Raises InvalidArgumentError for anything else."""
    return _fitting(field, given, float, is_optional=False)


def check_whole(field: str, given: Any) -> Any:
    """A whole number as Python's own, or None. Raises InvalidArgumentError for anything else."""
    return _fitting(field, given, int, is_optional=True)


def unknown_name(given: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that does not exist: the one that may be meant, otherwise all."""
    names = list(known)
    close = get_close_matches(given, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"


def _kind_of(annotation: object) -> tuple[object, bool] | None:
    """The kind that an annotation allows, and whether it allows None, too; None for anything else."""
    members = get_args(annotation) if get_origin(annotation) is not None and NoneType in get_args(annotation) else ()
    kinds = [each for each in members or (annotation,) if each is not NoneType]
    kind = get_origin(kinds[0]) or kinds[0]
    if {get_origin(each) for each in kinds} == {Iterable, AsyncIterable}:
        return AsyncIterable, False
    return (kind, bool(members)) if len(kinds) == 1 and kind in _KINDS else None


def _fitting(name: str, given: Any, kind: object, is_optional: bool) -> Any:  # noqa: FBT001 -- a pair of `_kind_of`
    if given is None and is_optional:
        return None
    types, said = _KINDS[kind]
    found: Any = plain(given)
    # A text would be taken for a list of its letters. For a namespace, a later check shows the labels that it may mean.
    is_letters = isinstance(found, str) and Iterable in types and name != "namespace"
    if is_letters or (isinstance(found, bool) and kind is not bool) or not isinstance(found, types):
        raise InvalidArgumentError.of(name, f"must be {said}, not {_shown(given)}")
    if isinstance(found, int) and abs(found) > _INT64_MAX:
        raise InvalidArgumentError.of(name, "must fit into 64 bits")
    # A comparison with NaN is false.
    if name == "timeout" and not (isinstance(found, int | float) and found > 0):
        raise InvalidArgumentError.of(name, f"must be more than 0 seconds, not {_shown(given)}")
    return found


def _shown(given: object) -> str:
    """A wrong value, as far as it helps: numbers and short texts as they are, otherwise their types."""
    if hasattr(given, "total_seconds"):
        return f"a {type(given).__name__}; its total_seconds() is one"
    is_short = given is None or isinstance(given, int | float | str)
    return repr(given) if is_short and len(repr(given)) <= 40 else type(given).__name__
