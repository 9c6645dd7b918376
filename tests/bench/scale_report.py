"""Tables and a plot of how costs grow with the number of memories."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from tests.bench import machine

GROWTH_MAX = 2.2
"""What twice the memories may cost at most, as a factor."""

GOALS_AT = 1_000_000
GOALS = {
    "create in bulk, each": 1 / 5_000,
    "hybrid search during bulk, p99": 0.1,
    "search by vector": 0.01,
    "recall@10 of it": 0.98,
    "search by words": 0.03,
    "hybrid search": 0.03,
    "hybrid search, one user's": 0.008,
    "search by vector, filter of 1 %": 0.015,
    "count by filter": 0.01,
    "warm start": 5.0,
    "resident memory": 1.5 * 2**30,
    "disk, a memory": 4_000.0,
}
"""At most, recall at least; in the figures' units."""

_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "mnemon"}
"""Text stays text, and the same figures give the same file."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured: seconds, bytes or a share, and seconds of the server's processor time."""

    value: float
    processor_s: float | None = None
    unit: str = "s"

    def shown(self) -> str:
        """As a cell of a table."""
        match self.unit:
            case "MiB":
                return f"{self.value / 2**20:,.0f} MiB"
            case "bytes":
                return f"{self.value:,.0f} bytes"
            case "recall":
                return f"{self.value:.3f}"
        return f"{_time(self.value)}{'' if self.processor_s is None else f' ({_time(self.processor_s)})'}"

    @property
    def cost(self) -> float:
        """What is compared between sizes: processor time if known."""
        return self.value if self.processor_s is None else self.processor_s


@dataclass(slots=True)
class Row:
    """What was measured at one size."""

    size: int
    figures: dict[str, Figure] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The opposite of `to_json`."""
        return cls(value["size"], {name: Figure(**figure) for name, figure in value["figures"].items()})

    def to_json(self) -> dict[str, Any]:
        """As values of JSON."""
        return asdict(self)

    def summary(self) -> str:
        """In one line."""
        return f"{self.size:,}: " + "; ".join(f"{name} {figure.shown()}" for name, figure in self.figures.items())


def tables(rows: Sequence[Row], *, command: str, note: str) -> str:
    """What was measured by size, and what twice the memories cost, from size to size."""
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    sizes = [f"{row.size:,}" for row in rows]
    lines = [machine.describe(), "", f"    {command}", "", note, ""]
    lines += _heading("at so many memories", *sizes, f"goal at {GOALS_AT:,}")
    for name in names:
        cells = [figure.shown() if (figure := row.figures.get(name)) else "" for row in rows]
        lines.append(_line(name, *cells, _goal(name, rows[-1])))
    return "\n".join([*lines, *(_growth(rows, names, sizes) if len(rows) > 1 else ()), ""])


def _growth(rows: Sequence[Row], names: Sequence[str], sizes: Sequence[str]) -> list[str]:
    lines = [
        "",
        f"What twice the memories cost, from size to size; the goal is {GROWTH_MAX:g} at most. It is the",
        "server's processor time, where known.",
        "",
    ]
    lines += _heading("cost", *(f"{one} to {other}" for one, other in pairwise(sizes)))
    for name in names:
        if all(name in row.figures and row.figures[name].unit != "recall" for row in rows):
            lines.append(_line(name, *(f"{factor:.2f}" for factor in doubling_factors(rows, name))))
    return lines


def doubling_factors(rows: Sequence[Row], name: str) -> list[float]:
    """From each size to the next: by what twice the memories multiply a cost."""
    factors = []
    for one, other in pairwise(rows):
        ratio = max(other.figures[name].cost, 1e-9) / max(one.figures[name].cost, 1e-9)
        factors.append(ratio ** (math.log(2) / math.log(other.size / one.size)))
    return factors


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draws cost against size on logarithmic axes, in the format that the file's name ends with."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Picture

    names = [name for name in dict.fromkeys(name for row in rows for name in row.figures) if _is_time(rows, name)]
    with mpl.rc_context(_STYLE):
        picture = Picture(figsize=(12, 5.4), layout="constrained")
        wall, processor = picture.subplots(1, 2, sharey=True)
        for number, name in enumerate(names):
            style = {"color": f"C{number % 10}", "marker": "os^"[number // 10], "markersize": 4, "linewidth": 1.5}
            known = [(row.size, figure) for row in rows if (figure := row.figures.get(name))]
            sizes = [size for size, _ in known]
            wall.plot(sizes, [1e3 * figure.value for _, figure in known], label=name, **style)
            if all(figure.processor_s is not None for _, figure in known):
                processor.plot(sizes, [1e3 * (figure.processor_s or 0) for _, figure in known], **style)
        wall.set(title="time of a call, median", ylabel="ms")
        processor.set(title="processor time of the server, mean")
        for axes in (wall, processor):
            axes.set(xscale="log", yscale="log", xlabel="memories")
            axes.grid(alpha=0.3)
        picture.legend(loc="outside right", fontsize="small")
        picture.savefig(file, metadata={"Date": None})


def _is_time(rows: Sequence[Row], name: str) -> bool:
    return any(row.figures[name].unit == "s" for row in rows if name in row.figures)


def _goal(name: str, row: Row) -> str:
    goal, figure = GOALS.get(name), row.figures.get(name)
    if goal is None or figure is None:
        return ""
    is_recall = figure.unit == "recall"
    shown = f"{'>=' if is_recall else '<='} {Figure(goal, unit=figure.unit).shown()}"
    if row.size != GOALS_AT:
        return shown
    return f"{shown}: {'met' if (figure.value >= goal if is_recall else figure.value <= goal) else 'missed'}"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _heading(*cells: str) -> list[str]:
    return [_line(*cells), _line(*("---",) * len(cells))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
