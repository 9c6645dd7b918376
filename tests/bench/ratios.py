"""Figures beside what the same machine could do at best, as the rows of a table with goals."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tests.bench import machine


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: the measurement, the baseline and their ratio."""

    what: str
    measured: str
    beside: str
    ratio: str
    goal: str = ""


def rate_row(
    what: str,
    measured: Sequence[float],
    beside_what: str,
    beside: Sequence[float],
    goal: float | None = None,
    *,
    unit: str = "/s",
) -> Row:
    """Rates, one for each round, beside others of the same rounds."""
    ratio = statistics.median(one / other for one, other in zip(measured, beside, strict=True))
    own, others = (f"{statistics.median(rates):,.0f}{unit}" for rates in (measured, beside))
    return Row(what, own, f"{beside_what}: {others}", f"{ratio:.2f}", at_least(ratio, goal))


def time_row(
    what: str, measured: Sequence[float], beside_what: str, beside: Sequence[float], goal: float | None = None
) -> Row:
    """Seconds beside others."""
    ratio = statistics.median(measured) / statistics.median(beside)
    return Row(what, median_ms(measured), f"{beside_what}: {median_ms(beside)}", f"{ratio:.2f}", at_most(ratio, goal))


def median_ms(seconds: Sequence[float]) -> str:
    """The median, in milliseconds."""
    return f"{statistics.median(seconds) * 1e3:.2f} ms"


def at_least(figure: float, goal: float | None, unit: str = "") -> str:
    """The goal, and whether the figure meets it; without a goal nothing."""
    return "" if goal is None else f">= {goal:,g}{unit}: {met(figure, goal)}"


def at_most(figure: float, goal: float | None, unit: str = "") -> str:
    """The goal, and whether the figure meets it; without a goal nothing."""
    return "" if goal is None else f"<= {goal:,g}{unit}: {met(goal, figure)}"


def met(more: float, less: float) -> str:
    """The word for a goal, which is met if the first number is not the smaller one."""
    return "met" if more >= less else "missed"


def report(rows: Sequence[Row], module: str, note: str, output: Path | None) -> None:
    """Shows the table with the command to reproduce it; see `show`."""
    lines = ["| what | over gRPC | beside | ratio | goal |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.measured} | {row.beside} | {row.ratio} | {row.goal} |" for row in rows]
    command = " ".join([f"python -m {module}", *sys.argv[1:]])
    show("\n".join([machine.describe(), "", f"    {command}", "", note, "", *lines, ""]), output)


def show(table: str, output: Path | None) -> None:
    """Prints the table, and adds it to the file."""
    click.echo(table)
    if output:
        with output.open("a", encoding="utf-8") as file:
            file.write(f"\n{table}")
