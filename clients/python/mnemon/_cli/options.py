"""Options that several commands share, and how their values are typed."""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from mnemon._cli.encodings import decoded
from mnemon._json import read_json
from mnemon._local_time import (
    ZONE_RULE,
    SkippedTimeError,
    UnknownZoneError,
    day_of,
    distance_of,
    exact_time,
    local_time,
    zone_named,
)
from mnemon._values.documents import ORIGIN_FIELDS, AckLevel, FilterValue, Scope, SearchMode
from mnemon._values.filters import AllOf, Condition, Filter, Negation, Operator
from mnemon._values.memories import TAGS
from mnemon.shared.namespaces import is_blank, likely_labels, namespace_labels, namespace_text
from mnemon.shared.terminal import echo

Command = TypeVar("Command", bound=Callable[..., Any])
Options = Mapping[str, Callable[[Any], Any]]
"""Options by the names of their arguments."""

STDIN = "-"
"""In the place of a file or a text: standard input."""
TEXT_BYTES_MAX = 1 << 20

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_OPERATORS = {
    "=": Operator.EQ,
    "!=": Operator.NE,
    ">": Operator.GT,
    ">=": Operator.GTE,
    "<": Operator.LT,
    "<=": Operator.LTE,
    "~": Operator.CONTAINS,
}
_COMPARISON = re.compile(r"([^=!<>~]+)(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)
_TIME_FIELDS = ("create_time", "update_time", "reinforce_time", "event_time", "record_time")
_OTHER_FIELDS = ("importance", "is_global")
"""Fields of records that are neither times nor texts."""
_OBJECT_WANTED = 'must be a JSON object, such as {"content": "Ada likes tea."}'

# Values


def typed(text: str) -> FilterValue:
    """The value that a text means: true, false, a whole number, a number, else text; quotes force text."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and ("." in text or "e" in text.lower()):
        return float(text)
    return text


def labels(text: str) -> tuple[str, ...]:
    """The labels of a namespace. Says so on standard error if the dots of a mail address have made several of it."""
    found = namespace_labels(text)
    if any("@" in label and "." not in label.partition("@")[2] for label in found[:-1]):
        echo(
            f"note: {text} has the labels {', '.join(found)}; a dot within a label has a backslash before it: "
            f"'{namespace_text(likely_labels(text))}'",
            err=True,
        )
    return found


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = read_json(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{_OBJECT_WANTED}; it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter(_OBJECT_WANTED)
    return found


def text_pair(text: str) -> tuple[str, str]:
    """`key=value`, both texts, split at the first `=`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not key=value, such as user_id=ada")
    return key, value


def key_value(text: str) -> tuple[str, FilterValue]:
    """`key=value`, split at the first `=`, the value typed."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f'{text!r} is not key=value, such as topic=travel, year=2024 or code="007"')
    return key, typed(value)


def as_mapping(
    context: click.Context, parameter: click.Parameter, pairs: tuple[tuple[str, FilterValue], ...]
) -> dict[str, FilterValue]:
    """The pairs of a repeatable option by their keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise click.BadParameter("a key is given twice", context, parameter)
    return found


def some(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A text that is not empty, or None."""
    if value == "":
        raise click.BadParameter("must not be empty; leave the option out", context, parameter)
    return value


def visible(text: str) -> str:
    """A text with a character that can be seen: the server finds nothing for any other."""
    if not text or is_blank(text):
        raise click.BadParameter("must not be blank; a variable may be unset")
    return text


def read_bytes(path: str) -> bytes:
    """The content of a file or of standard input; of a longer one, a byte more than TEXT_BYTES_MAX."""
    # One byte more than allowed shows that the file is too large, without reading all of it.
    if path == STDIN:
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    with Path(path).open("rb") as file:
        return file.read(TEXT_BYTES_MAX + 1)


def text_or_stdin(text: str) -> str:
    """A text that can be seen; "-" reads it from standard input, without the line breaks at its end."""
    if text != STDIN:
        return visible(text)
    data = read_bytes(STDIN)
    if len(data) > TEXT_BYTES_MAX:
        raise click.BadParameter(f"standard input is longer than {TEXT_BYTES_MAX:,} bytes")
    try:
        found = decoded(data).rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.BadParameter("standard input is not UTF-8 text") from None
    if not found or is_blank(found):
        raise click.BadParameter("standard input is empty")
    return found


def moment(text: str) -> datetime | timedelta:
    """A point in time, or a distance from now: 2027-01-31, 2027-01-31T12:00+01:00, 90m, 12h, 30d or 2 weeks."""
    try:
        if (distance := distance_of(text)) is not None:
            return distance
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long") from None
    try:
        return local_time(text)
    except SkippedTimeError as error:
        raise click.BadParameter(str(error)) from None
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither a time, such as 2027-01-31 or yesterday, nor a distance, such as 30d"
        ) from None


def time_zone(name: str) -> str:
    """The name of a time zone; optional."""
    try:
        return str(zone_named(name)) if name else ""
    except UnknownZoneError:
        raise click.BadParameter(ZONE_RULE) from None


def past(text: str) -> datetime:
    """A point in time; a distance is counted back from now."""
    found = moment(text)
    return found if isinstance(found, datetime) else _now_and(-found, text)


def until(text: str) -> datetime:
    """The end of a span of time, inclusive: as `past`, but a day means its last microsecond."""
    days = day_of(text)
    return days[1] if days else past(text)


def future(text: str) -> datetime:
    """A point in time; a distance is counted on from now."""
    found = moment(text)
    return found if isinstance(found, datetime) else _now_and(found, text)


def deadline(text: str) -> datetime:
    """The end of a span of time that begins now, inclusive: as `future`, but a day means its last microsecond."""
    days = day_of(text)
    return days[1] if days else future(text)


def _now_and(distance: timedelta, text: str) -> datetime:
    try:
        return datetime.now(UTC) + distance
    except OverflowError:
        raise click.BadParameter(f"{text!r} is beyond the calendar") from None


def split_comparison(text: str, example: str) -> tuple[str, Operator, str]:
    """Field, operator and value of a comparison. A value that begins with an operator is an error, unless quoted."""
    found = _COMPARISON.fullmatch(text)
    if not found or found[3].lstrip()[:1] in ("=", "!", "<", ">", "~"):
        raise click.BadParameter(
            f"{text!r} is not a comparison, such as {example}; the operators are {' '.join(_OPERATORS)}; "
            'quotes force text: field="=text"'
        )
    return found[1].strip(), _OPERATORS[found[2]], found[3].strip()


def compared(operator: Operator, text: str) -> FilterValue:
    """The value to compare with, which has the type that it looks like; a part of a text is text: "~5" finds "5 pm"."""
    found = typed(text)
    return text if operator is Operator.CONTAINS and not isinstance(found, str) else found


def comparison(text: str) -> Filter:
    """`FIELD OPERATOR VALUE`, such as metadata.score>=3. Metadata gets the type that it looks like, any other value
    the type of its field.
    """
    field, operator, value = split_comparison(text, "metadata.score>=3, agent!=claude or content~tea")
    if field in _TIME_FIELDS and (day := day_of(value)):
        return _on_day(field, operator, *day)
    return Condition(field, operator, (_value(field, operator, value),))


def _on_day(field: str, operator: Operator, first: datetime, last: datetime) -> Filter:
    """The comparison of a time with a day, which is the span from its first to its last microsecond."""
    match operator:
        case Operator.EQ:
            return AllOf((Condition(field, Operator.GTE, (first,)), Condition(field, Operator.LTE, (last,))))
        case Operator.NE:
            return Negation(_on_day(field, Operator.EQ, first, last))
    return Condition(field, operator, (last if operator in (Operator.GT, Operator.LTE) else first,))


def _value(field: str, operator: Operator, text: str) -> datetime | FilterValue:
    if field in _TIME_FIELDS:
        return past(text)
    found = compared(operator, text)
    is_typed = isinstance(found, str) or field.startswith("metadata.") or field in _OTHER_FIELDS
    return found if is_typed else text


def joined(comparisons: tuple[Filter, ...]) -> Filter:
    """The filter for which all comparisons are true."""
    return comparisons[0] if len(comparisons) == 1 else AllOf(comparisons)


# Options


def choice_of(members: Iterable[str]) -> click.Choice[str]:
    """The type of an option that takes the values of an enumeration."""
    return click.Choice([str(each) for each in members])


def _set_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    context.obj.as_json = value


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, which the session knows as `as_json`; the command gets the session as its first argument."""
    option = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_json, help="Print JSON for programs."
    )
    return option(click.pass_obj(command))


dry_run_option = click.option("--dry-run", is_flag=True, help="Only count.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
as_of_option = click.option(
    "--as-of", type=past, metavar="TIME|AGE", help="What was known then: 2027-01-31T12:00, or 30d before now."
)
min_score_option = click.option(
    "--min-score", type=click.FloatRange(0, 1), default=0.0, help="Leave out results below this score."
)
ORIGINS = ("user", "agent", "tool", "import", "web")
min_trust_option = click.option(
    "--min-trust",
    type=click.Choice(ORIGINS),
    help="Exclude records from less trusted origins.",
)
mode_option = click.option(
    "--mode",
    type=choice_of(SearchMode),
    default=SearchMode.HYBRID.value,
    show_default=True,
    help="Search by meaning, by word, or both.",
)
take_over_option = click.option(
    "--take-over", is_flag=True, help="Replace documents of the same ids that are of another scope or folder."
)


def ack_option(noun: str) -> Callable[[Command], Command]:
    """`--ack`: when a write counts as done."""
    return click.option(
        "--ack",
        type=choice_of(AckLevel),
        default=AckLevel.DURABLE.value,
        show_default=True,
        help=f"When a {noun} counts as stored: on disk, or also in the vector database.",
    )


def file_option(verb: str) -> Callable[[Command], Command]:
    """`--file`, with JSON lines; the command gets `path`."""
    return click.option(
        "--file",
        "path",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help=f"{verb} the contents of this file of JSON lines; - is standard input.",
    )


def filter_option(noun: str) -> Callable[[Command], Command]:
    """`--filter key=value`, repeatable; the command gets `filters`."""
    return _pairs_option("--filter", "filters", f"Only {noun} with this metadata")


def meta_option(noun: str) -> Callable[[Command], Command]:
    """`--meta key=value`, repeatable; the command gets `metadata`."""
    return _pairs_option("--meta", "metadata", f"Metadata for every {noun}")


def set_option(command: Command) -> Command:
    """`--set key=value`, repeatable; the command gets `set_metadata`."""
    return _pairs_option("--set", "set_metadata", "Metadata to set")(command)


def _pairs_option(flag: str, name: str, text: str) -> Callable[[Command], Command]:
    text = f'{text}; repeatable. true, false and numbers keep their type; "quotes" make it text.'
    return click.option(flag, name, type=key_value, metavar="KEY=VALUE", multiple=True, callback=as_mapping, help=text)


def limit_option(default: int | None, *, maximum: int | None = None) -> Callable[[Command], Command]:
    """`--limit`, which is also `--top-k`, `-k` and `-n`; the command gets `limit`. Without a maximum, 0 means all.

    A default of None leaves it to the server.
    """
    text = "Maximum number; 0 for all." if maximum is None else "Maximum number of results."
    return click.option(
        "--limit",
        "--top-k",
        "-k",
        "-n",
        type=click.IntRange(min=0) if maximum is None else click.IntRange(1, maximum),
        # Several, so that two that differ are an error: by itself, the last one would win.
        multiple=True,
        default=() if default is None else (default,),
        show_default=default is not None,
        callback=_one_limit,
        help=text,
    )


def _one_limit(context: click.Context, parameter: click.Parameter, given: tuple[int, ...]) -> int | None:
    if len(set(given)) > 1:
        raise click.BadParameter(f"one number is meant, not {' and '.join(map(str, given))}", context, parameter)
    # A limit beyond the range of `islice` means all.
    return min(given[0], sys.maxsize) if given else None


def collected(argument: str, options: Options, collect: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    """These options in their order; the command gets what `collect` makes of them as one argument."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*args: Any, **kwargs: Any) -> Any:
            return command(*args, **{argument: collect({name: kwargs.pop(name) for name in options})}, **kwargs)

        for option in reversed([*options.values()]):
            call = option(call)
        return call

    return decorated


def given_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name, value in values.items() if value is not None and value != ()}


def dashed(name: str) -> str:
    """The option for a field."""
    return f"--{name.replace('_', '-')}"


SCOPE_HELP = {
    "user": "The end user.",
    "household": "The group of users that shares the records.",
    "persona": "The persona that an agent speaks as.",
    "agent": "The agent that wrote the records.",
    "project": "The project or workspace.",
    "origin": "Where the records come from: user, agent, tool, import or web.",
    "origin_name": "Which tool, file or site; only with --origin.",
}
ORIGIN_HELP = {name: SCOPE_HELP[name] for name in ORIGIN_FIELDS}
_OWNER_HELP = {name: TAGS[name] for name in SCOPE_HELP} | {"user": "The user it belongs to."}


def scope_options_of(names: Iterable[str]) -> Callable[[Any], Any]:
    """An option for each of these fields of a scope, such as `--user`; the command gets `scope`."""
    options = {name: click.option(dashed(name), help=SCOPE_HELP[name]) for name in names}
    return collected("scope", options, lambda given: Scope(**{name: text or "" for name, text in given.items()}))


scope_options = scope_options_of(SCOPE_HELP)


def text_options(helps: Mapping[str, str], *, required: str = "") -> Options:
    """Options for texts, each under its own name; none may be empty."""
    return {
        name: click.option(dashed(name), name, required=name == required, callback=some, help=text)
        for name, text in helps.items()
    }


def owner_options(*, user_required: bool = False) -> Options:
    """The scope of a statement or an event: an option for each field, such as `--user`."""
    return text_options(_OWNER_HELP, required="user" if user_required else "")


def where_option(noun: str, examples: str) -> Callable[[Any], Any]:
    """`--where`, repeatable; the command gets `comparisons`."""
    return click.option(
        "--where",
        "comparisons",
        type=comparison,
        metavar="COMPARISON",
        multiple=True,
        help=f"Only {noun} for which this is true: {examples}, content~tea; repeatable. != is also true of those "
        "without the field.",
    )


def span_options(what: str) -> Options:
    """`--since` and `--until`."""
    example = "2027-01-31, yesterday, 2027-01-31T12:00, 12h, 30d"
    return {
        name: click.option(
            f"--{name}",
            type=kind,
            metavar="TIME|AGE",
            callback=_in_order,
            help=f"Only {what} {name} this time{more}: {example}.",
        )
        for name, kind, more in (("since", past, ""), ("until", until, ", of a day to its end"))
    }


def _in_order(context: click.Context, parameter: click.Parameter, given: datetime | None) -> datetime | None:
    """The time. Raises BadParameter if the span ends before it begins; the callback of the later option sees both."""
    span = {**context.params, str(parameter.name): given}
    start, end = span.get("since"), span.get("until")
    if start is not None and end is not None and end < start:
        raise click.BadParameter(
            f"--since, {exact_time(start)}, is later than --until, {exact_time(end)}", context, parameter
        )
    return given


def which_options(options: Options, **names: str) -> Callable[[Any], Any]:
    """Filters; the command gets those given as `which`: keyword arguments of the client, some under other names."""
    return collected("which", options, lambda given: which_of(given, **names))


def which_of(given: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """The filters that are given, as keyword arguments of the client."""
    found = given_of(given)
    if "comparisons" in found:
        found["where"] = joined(found.pop("comparisons"))
    if not found.get("filters", True):
        del found["filters"]
    return {names.get(name, name): value for name, value in found.items()}
