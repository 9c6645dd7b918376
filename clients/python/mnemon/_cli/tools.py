"""The commands for the tools of language models."""

import json
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.encodings import TEXT_FILE, content_of
from mnemon._cli.session import Session
from mnemon._values import tools as tool_values
from mnemon._values.tools import ParseOptions
from mnemon.shared import tool_definitions as definitions
from mnemon.shared.terminal import echo

_actions_option = click.option(
    "--permit",
    "actions_permitted",
    type=opt.choice_of(definitions.MemoryAction),
    multiple=True,
    callback=lambda context, parameter, value: value or None,
    help="What manage_memory may do; repeatable.  [default: all that the server permits]",
)


def _about(given: dict[str, Any]) -> dict[str, Any]:
    """The application's part of a call: keyword arguments of `call`."""
    response_format = "content_and_artifact" if given.pop("artifact") else "content"
    return {**given, "config": dict(given["config"]), "response_format": response_format}


_context_options = opt.collected(
    "about",
    {
        "config": click.option(
            "--config",
            type=opt.text_pair,
            metavar="KEY=TEXT",
            multiple=True,
            help="A value for a placeholder in the namespace; repeatable.",
        ),
        "namespace": click.option(
            "--namespace",
            type=opt.labels,
            metavar="LABELS",
            help="The namespace of the memories: user.ada, or {user_id}.notes.",
        ),
        "actions_permitted": _actions_option,
        "metadata": opt.meta_option("fact that is created"),
        "artifact": click.option("--artifact", is_flag=True, help="Include the facts that were found, in JSON."),
    },
    _about,
)


def _how(given: dict[str, bool]) -> ParseOptions:
    """The strictness of the parser."""
    return {
        "strict_envelope": given["strict_envelope"],
        "strict_boundaries": given["strict_boundaries"],
        "require_end_marker": not given["no_end_marker"],
        "dual_mode": not given["abp_only"],
    }


_parse_options = opt.collected(
    "options",
    {
        name: click.option(f"--{name.replace('_', '-')}", is_flag=True, help=text)
        for name, text in {
            "strict_envelope": "Require both the action and the parameters of a call.",
            "no_end_marker": "Accept a complete, valid object as a call even without its end marker.",
            "strict_boundaries": "Refuse the whole text if a marker is out of place.",
            "abp_only": "Do not try VCP if ABP finds no call.",
        }.items()
    },
    _how,
)


@click.group()
def tools() -> None:
    """Show the tools as a language model sees them, and run its calls."""


@tools.command("list")
@_actions_option
@click.option(
    "--style",
    type=opt.choice_of(definitions.SchemaStyle),
    help="Print them as JSON for this API.",
)
@opt.json_option
def list_tools(session: Session, actions_permitted: tuple[str, ...] | None, style: str | None) -> None:
    """List the tools as a model sees them."""
    if style is not None:
        schemas = session.client.tools.schemas(style, actions_permitted=actions_permitted)
        echo(json.dumps(schemas, ensure_ascii=False, indent=None if session.as_json else 2))
        return
    found = session.client.tools.list(actions_permitted=actions_permitted)
    out.show_list(session, iter(found), tool_table, limit=0)


@tools.command()
@click.argument("tool")
@click.argument("arguments", type=lambda text: opt.json_object(opt.text_or_stdin(text)))
@_context_options
@opt.json_option
def call(session: Session, tool: str, arguments: dict[str, Any], *, about: dict[str, Any]) -> None:
    """Run TOOL with ARGUMENTS, a JSON object, and print what it returns; - reads standard input."""
    output = session.client.tools.call(tool, arguments, **about)
    out.show(session, output, output.content)


@tools.command()
@click.argument("text", metavar="[FILE]", type=TEXT_FILE, default="-", callback=content_of)
@_parse_options
@opt.json_option
def parse(session: Session, text: str, *, options: ParseOptions) -> None:
    """Find the calls in a model's text from FILE or standard input, and run none of them.

    The exit code is 1 if there is no call.
    """
    parsed = session.client.tools.parse(text, **options)
    out.show(session, parsed, parsed_table)
    if not parsed.success:
        raise SystemExit(1)


@tools.command()
@click.argument("text", metavar="[FILE]", type=TEXT_FILE, default="-", callback=content_of)
@_context_options
@_parse_options
@opt.json_option
def execute(session: Session, text: str, *, about: dict[str, Any], options: ParseOptions) -> None:
    """Run the calls in a model's text from FILE or standard input, in order.

    The exit code is 1 if a call fails, or if a block cannot be read as a call; standard error says why.
    """
    done = session.client.tools.execute(text, **about, **options)
    if session.as_json:
        echo(done.to_json())
    else:
        for line in result_lines(done.results):
            session.console.print(line, soft_wrap=True)
        if not done.results and not done.parsed.problems:
            session.console.print(parsed_table(done.parsed))
    for problem in done.parsed.problems:
        echo(_problem_line(problem).plain, err=True)
    if done.parsed.problems or any(result.error for result in done.results):
        raise SystemExit(1)


@tools.command()
@opt.json_option
def stats(session: Session) -> None:
    """Count the texts that were parsed since the vault was opened, by outcome."""
    out.show(session, session.client.tools.stats(), stats_table)


# Tables


def tool_table(found: Iterable[tool_values.Tool]) -> RenderableType:
    """The tools, each with its description and the names of its arguments."""
    return out.record_table(
        {"tool": out.FOLDED, "run by": out.SHORT, "told": out.REST}, map(_tool_row, found), "no tools"
    )


def _tool_row(tool: tool_values.Tool) -> list[RenderableType]:
    by = "an endpoint" if tool.kind == tool_values.ToolKind.FORWARDED else "this server"
    arguments = out.plain(", ".join(tool.parameters.get("properties", {})), "dim")
    return [tool.name, by, Group(out.plain(tool.description), arguments)]


def parsed_table(parsed: tool_values.ParsedText) -> RenderableType:
    """The calls of a text, and the blocks that are not calls."""
    if not parsed.calls and not parsed.problems:
        return Text("no call: the text is the model's answer")
    columns = {"tool": out.FOLDED, "action": out.FOLDED, "parameters": out.REST}
    return Group(out.record_table(columns, map(_call_row, parsed.calls), ""), *map(_problem_line, parsed.problems))


def result_lines(results: Iterable[tool_values.ToolCallResult]) -> Iterable[Text]:
    """The result of each call, one line each."""
    for result in results:
        number = f" {result.command_number}" if result.command_number else ""
        yield out.plain(f"{result.call_id}{number}  {result.tool}: {result.content}", "red" if result.error else "")


def stats_table(stats: tool_values.ProtocolStats) -> RenderableType:
    """Counts of the texts by outcome."""
    return out.field_table(
        {
            "texts": stats.total,
            "ABP gave a call": stats.abp_success,
            "ABP failed": stats.abp_failed,
            "then VCP gave one": stats.vcp_fallback_success,
            "then VCP failed": stats.vcp_fallback_failed,
            "no marker": stats.plain_text,
        }
    )


def _call_row(call: tool_values.ToolCall) -> list[RenderableType]:
    parameters = out.one_line(json.dumps(call.parameters, ensure_ascii=False))
    how = "; ".join([f"{call.protocol} {call.call_id}", *call.repairs])
    return [call.tool, call.action, Group(parameters, out.plain(how, "dim"))]


def _problem_line(problem: tool_values.BlockProblem) -> Text:
    tool = f" of {problem.tool}" if problem.tool else ""
    return out.plain(f"line {problem.line}: a block{tool} gave no call: {problem.reason}", "red")
