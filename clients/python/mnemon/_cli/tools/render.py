"""Formats tools and parsed texts for people."""

import json
from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._cli.render import field_table, one_line, plain
from mnemon._values import tools

_PARAMETERS_CHARACTERS_MAX = 400


def tool_table(found: Iterable[tools.Tool]) -> RenderableType:
    """The tools, each with its description and the names of its arguments."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool", overflow="fold")
    table.add_column("run by", no_wrap=True)
    table.add_column("told", ratio=1, overflow="fold")
    for tool in found:
        by = "an endpoint" if tool.kind == tools.ToolKind.FORWARDED else "this server"
        arguments = plain(", ".join(tool.parameters.get("properties", {})), "dim")
        table.add_row(plain(tool.name), by, Group(plain(tool.description), arguments))
    return table if table.row_count else Text("no tools")


def parsed_table(parsed: tools.ParsedText) -> RenderableType:
    """The calls of a text, and the blocks that are not calls."""
    if not parsed.calls and not parsed.problems:
        return Text("no call: the text is the model's answer")
    return Group(_call_table(parsed.calls), *map(problem_line, parsed.problems))


def result_lines(results: Iterable[tools.ToolCallResult]) -> Iterable[Text]:
    """The result of each call, one line each."""
    for result in results:
        number = f" {result.command_number}" if result.command_number else ""
        yield plain(f"{result.call_id}{number}  {result.tool}: {result.content}", "red" if result.error else "")


def stats_table(stats: tools.ProtocolStats) -> RenderableType:
    """Counts of the texts by outcome."""
    return field_table(
        {
            "texts": stats.total,
            "ABP gave a call": stats.abp_success,
            "ABP failed": stats.abp_failed,
            "then VCP gave one": stats.vcp_fallback_success,
            "then VCP failed": stats.vcp_fallback_failed,
            "no marker": stats.plain_text,
        }
    )


def problem_line(problem: tools.BlockProblem) -> Text:
    """Why a block of a text is no call, and where it is."""
    tool = f" of {problem.tool}" if problem.tool else ""
    return plain(f"line {problem.line}: a block{tool} gave no call: {problem.reason}", "red")


def _call_table(calls: Iterable[tools.ToolCall]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool", overflow="fold")
    table.add_column("action", overflow="fold")
    table.add_column("parameters", ratio=1, overflow="fold")
    for call in calls:
        parameters = one_line(json.dumps(call.parameters, ensure_ascii=False), _PARAMETERS_CHARACTERS_MAX)
        how = "; ".join([f"{call.protocol} {call.call_id}", *call.repairs])
        table.add_row(plain(call.tool), plain(call.action), Group(parameters, plain(how, "dim")))
    return table
