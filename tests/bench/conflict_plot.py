"""Precision and recall of the semantic and the keyword signal over their thresholds, as a picture."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from mnemon_server.domain.conflicts import DetectionConfig, SignalType

from tests.bench.classification import Share
from tests.bench.conflict_pairs import Half
from tests.bench.conflict_report import DEFAULTS, in_half
from tests.bench.conflict_trials import Trial, detection_answers, only

STEPS = 51
_COLORS = {"precision": "tab:blue", "recall": "tab:orange"}
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "mnemon"}
"""Text stays text, and the same figures give the same file."""


def draw(trials: Sequence[Trial], file: Path, *, title: str) -> None:
    """Writes the picture in the format that the file's name ends with."""
    panels: list[tuple[str, float, Callable[[float], DetectionConfig]]] = [
        ("semantic", DEFAULTS.semantic_threshold, lambda bound: only(SignalType.SEMANTIC, semantic=bound)),
        ("keyword", DEFAULTS.keyword_threshold, lambda bound: only(SignalType.KEYWORD, keyword=bound)),
    ]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        for axes, (name, default, config) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            for half in Half:
                _curves(axes, in_half(trials, half), half, config)
            axes.axvline(default, color="black", linewidth=1, linestyle=":", label="default")
            axes.set(title=f"{name} signal, default {default:g}", xlabel="threshold", xlim=(0, 1), ylim=(0, 1.02))
            axes.grid(alpha=0.3)
        figure.axes[0].legend(loc="lower left", fontsize="small")
        figure.suptitle(title, fontsize="medium")
        figure.savefig(file, metadata={"Date": None})


def _curves(axes: Any, trials: Sequence[Trial], half: Half, config: Callable[[float], DetectionConfig]) -> None:
    bounds = [step / (STEPS - 1) for step in range(STEPS)]
    answers = [detection_answers(trials, config(bound)) for bound in bounds]
    for metric, shares in {"precision": [a.precision for a in answers], "recall": [a.recall for a in answers]}.items():
        reported = half is Half.REPORTING
        style = {"color": _COLORS[metric], "linestyle": "-" if reported else "--", "linewidth": 2 if reported else 1}
        axes.plot(bounds, [share.value for share in shares], label=f"{metric}, {half}", **style)
        if reported:
            _band(axes, bounds, shares, _COLORS[metric])


def _band(axes: Any, bounds: Sequence[float], shares: Sequence[Share], color: str) -> None:
    known = [(bound, *share.interval) for bound, share in zip(bounds, shares, strict=True) if share.of]
    axes.fill_between(*zip(*known, strict=True), color=color, alpha=0.15, linewidth=0)
