"""The commands for the tools of language models."""

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from mnemon import _tool_definitions as definitions
from mnemon._cli.facts.options import json_object, text_pair
from mnemon._cli.options import json_option, labels, meta_option
from mnemon._cli.session import Session
from mnemon._cli.tools import render as tool_render
from mnemon._terminal import echo
from mnemon._values.tools import ParseOptions

_ACTIONS_HELP = "What manage_memory may do; repeatable.  [default: all that the server permits]"


@click.group()
def tools() -> None:
    """Show the tools as a language model sees them, and run its calls."""


def _actions_option(command: Callable[..., Any]) -> Callable[..., Any]:
    choice = click.Choice([each.value for each in definitions.MemoryAction])
    return click.option(
        "--permit",
        "actions_permitted",
        type=choice,
        multiple=True,
        callback=lambda context, parameter, value: value or None,
        help=_ACTIONS_HELP,
    )(command)


def _context_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The application's part of a call; the command gets `about`: keyword arguments of `call`."""

    @functools.wraps(command)
    def with_about(*args: Any, **kwargs: Any) -> Any:
        names = ("namespace", "config", "actions_permitted", "metadata")
        about = {name: kwargs.pop(name) for name in names}
        about["response_format"] = "content_and_artifact" if kwargs.pop("artifact") else "content"
        return command(*args, about={**about, "config": dict(about["config"])}, **kwargs)

    artifact = click.option("--artifact", is_flag=True, help="Include the facts that were found, in JSON.")
    namespace = click.option(
        "--namespace",
        type=labels,
        metavar="LABELS",
        help="The namespace of the memories: user.ada, or {user_id}.notes.",
    )
    config = click.option(
        "--config",
        type=text_pair,
        metavar="KEY=TEXT",
        multiple=True,
        help="A value for a placeholder in the namespace; repeatable.",
    )
    return config(namespace(_actions_option(meta_option("fact that is created")(artifact(with_about)))))


def _parse_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How strictly a text is read; the command gets `options`."""

    @functools.wraps(command)
    def with_options(*args: Any, **kwargs: Any) -> Any:
        options: ParseOptions = {
            "strict_envelope": kwargs.pop("strict_envelope"),
            "strict_boundaries": kwargs.pop("strict_boundaries"),
            "require_end_marker": not kwargs.pop("no_end_marker"),
            "dual_mode": not kwargs.pop("abp_only"),
        }
        return command(*args, options=options, **kwargs)

    for flag, text in (
        ("--abp-only", "Do not try VCP if ABP finds no call."),
        ("--strict-boundaries", "Refuse the whole text if a marker is out of place."),
        ("--no-end-marker", "Accept a complete, valid object as a call even without its end marker."),
        ("--strict-envelope", "Require both the action and the parameters of a call."),
    ):
        with_options = click.option(flag, is_flag=True, help=text)(with_options)
    return with_options


@tools.command("list")
@_actions_option
@click.option(
    "--style",
    type=click.Choice([each.value for each in definitions.SchemaStyle]),
    help="Print them as JSON for this API.",
)
@json_option
@click.pass_obj
def list_tools(
    session: Session, actions_permitted: tuple[str, ...] | None, style: str | None, *, as_json: bool
) -> None:
    """List the tools as a model sees them."""
    if style is not None:
        schemas = session.client.tools.schemas(style, actions_permitted=actions_permitted)
        echo(json.dumps(schemas, ensure_ascii=False, indent=None if as_json else 2))
        return
    found = session.client.tools.list(actions_permitted=actions_permitted)
    if as_json:
        for tool in found:
            echo(tool.to_json())
    else:
        session.console.print(tool_render.tool_table(found))


@tools.command()
@click.argument("tool")
@click.argument("arguments", type=json_object)
@_context_options
@json_option
@click.pass_obj
def call(session: Session, tool: str, arguments: dict[str, Any], *, about: dict[str, Any], as_json: bool) -> None:
    """Run TOOL with ARGUMENTS, a JSON object, and print what it returns."""
    output = session.client.tools.call(tool, arguments, **about)
    echo(output.to_json() if as_json else output.content)


@tools.command()
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@_parse_options
@json_option
@click.pass_obj
def parse(session: Session, file: Any, *, options: ParseOptions, as_json: bool) -> None:
    """Find the calls in a model's text from FILE or standard input, and run none of them.

    The exit code is 1 if there is no call.
    """
    parsed = session.client.tools.parse(_text(file), **options)
    if as_json:
        echo(parsed.to_json())
    else:
        session.console.print(tool_render.parsed_table(parsed))
    if not parsed.success:
        raise SystemExit(1)


@tools.command()
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@_context_options
@_parse_options
@json_option
@click.pass_obj
def execute(session: Session, file: Any, *, about: dict[str, Any], options: ParseOptions, as_json: bool) -> None:
    """Run the calls in a model's text from FILE or standard input, in order.

    The exit code is 1 if a call fails, or if a block cannot be read as a call; standard error says why.
    """
    done = session.client.tools.execute(_text(file), **about, **options)
    if as_json:
        echo(done.to_json())
    else:
        for line in tool_render.result_lines(done.results):
            session.console.print(line, soft_wrap=True)
        if not done.results and not done.parsed.problems:
            session.console.print(tool_render.parsed_table(done.parsed))
    for problem in done.parsed.problems:
        echo(tool_render.problem_line(problem).plain, err=True)
    if done.parsed.problems or any(result.error for result in done.results):
        raise SystemExit(1)


@tools.command()
@json_option
@click.pass_obj
def stats(session: Session, *, as_json: bool) -> None:
    """Count the texts that were parsed since the vault was opened, by outcome."""
    found = session.client.tools.stats()
    if as_json:
        echo(found.to_json())
    else:
        session.console.print(tool_render.stats_table(found))


def _text(file: Any) -> str:
    try:
        found: str = file.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not UTF-8: {error.reason}") from None
    return found
