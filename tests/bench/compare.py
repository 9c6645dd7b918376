"""Another measurement before and after a change: it runs on the servers of two checkouts in turn.

    python -m tests.bench.compare CHECKOUT semantic [--times 3] [-- --rounds 1 ...]

Everything after `--` goes to the measurement. The load, the baselines and the client are those of this checkout.
"""

import os
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from tests.bench import machine
from tests.bench.processes import CHECKOUT_VARIABLE

MEASUREMENTS = ("speed", "memories", "semantic", "episodic")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class Figure(NamedTuple):
    """A cell of a table, such as 4.25 ms, or 1,764/s."""

    number: float
    unit: str

    @classmethod
    def read(cls, cell: str) -> "Figure | None":
        """The figure with which a cell begins; None if it begins with none."""
        found = _NUMBER.match(cell)
        return cls(float(found[0].replace(",", "")), cell[found.end() :]) if found else None


Samples = dict[tuple[str, int], list[tuple[Figure, float | None]]]
"""The figures and their ratios to the baseline, by row: what it measures, and which of several with that name it is."""


def rows(table: str) -> Iterator[tuple[tuple[str, int], Figure, float | None]]:
    """The rows of a printed table that begin with a figure: the row, the figure, and its ratio to the baseline."""
    seen: Counter[str] = Counter()
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if len(cells) < 4 or (figure := Figure.read(cells[1])) is None:
            continue
        ratio = Figure.read(cells[3])
        yield (cells[0], seen[cells[0]]), figure, ratio and ratio.number
        seen[cells[0]] += 1


def report(before: Samples, now: Samples) -> str:
    """The medians of both, for the rows that both have."""
    lines = [
        "| what | before | to baseline | now | to baseline | now to before |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for key in (key for key in before if key in now):
        cells = [text for samples in (before[key], now[key]) for text in _shown(samples)]
        change = _median(now[key]) / _median(before[key]) if _median(before[key]) else 1.0
        lines.append(f"| {key[0]} | {' | '.join(cells)} | {change:.2f} |")
    return "\n".join(lines)


def _median(samples: Sequence[tuple[Figure, float | None]]) -> float:
    return statistics.median(figure.number for figure, _ in samples)


def _shown(samples: Sequence[tuple[Figure, float | None]]) -> tuple[str, str]:
    ratios = [ratio for _, ratio in samples if ratio is not None]
    return f"{_median(samples):,.5g}{samples[0][0].unit}", f"{statistics.median(ratios):.2f}" if ratios else ""


def _measured(measurement: str, arguments: Sequence[str], checkout: Path | None) -> str:
    environment = os.environ | ({CHECKOUT_VARIABLE: str(checkout)} if checkout else {})
    command = [sys.executable, "-m", f"tests.bench.{measurement}", *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@click.command()
@click.argument("checkout", type=click.Path(path_type=Path, exists=True))
@click.argument("measurement", type=click.Choice(MEASUREMENTS))
@click.argument("arguments", nargs=-1)
@click.option("--times", default=3, show_default=True, help="How often each checkout is measured.")
def main(checkout: Path, measurement: str, arguments: tuple[str, ...], times: int) -> None:
    """Measures the servers of another checkout and of this one in turn."""
    samples: dict[str, Samples] = {"before": defaultdict(list), "now": defaultdict(list)}
    for number in range(times):
        # Each time in the other order: the second run may find a warmer or a busier machine.
        for name in ("before", "now") if number % 2 == 0 else ("now", "before"):
            table = _measured(measurement, arguments, checkout.resolve() if name == "before" else None)
            click.echo(f"{name}, {number + 1} of {times}\n\n{table}", err=True)
            for row, figure, ratio in rows(table):
                samples[name][row].append((figure, ratio))
    command = " ".join(["python -m tests.bench.compare", *sys.argv[1:]])
    click.echo(f"{machine.describe()}\n\n    {command}\n\nRuns of each checkout: {times}, in turn. Medians.\n")
    click.echo(report(samples["before"], samples["now"]))


if __name__ == "__main__":
    main()
