"""How well conflicts, repetitions and decisions are handled: the default rule on labelled pairs.

    python -m tests.bench.conflicts [--data FOLDER] [--plot FILE] [--model NAME] [--limit COUNT]

Nothing is tuned here. The halves are reported separately, and `tests/data/README.md` says which may be looked at.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from tests.bench import machine
from tests.bench.conflict_pairs import FRESH, Half, Label, Pair, load_references, load_written
from tests.bench.conflict_report import Thresholds, choose, fresh_detection, report
from tests.bench.conflict_trials import Trial, open_embedder, run_trials


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder of conversations that pairs refer to.")
@click.option("--plot", type=click.Path(path_type=Path), help="File for the curves over thresholds, such as x.svg.")
@click.option("--model", help="The embedding model; by default the server's.")
@click.option("--limit", type=click.IntRange(min=1), help="Pairs of each label that are taken; by default all.")
def main(data: Path | None, plot: Path | None, model: str | None, limit: int | None) -> None:
    """Measures the default rule on labelled pairs."""
    references = load_references(data) if data else []
    if data and not references:
        click.echo(f"skipped: {data} holds no conversations", err=True)
    with closing(open_embedder(model)) as embedder:
        name = f"{embedder.model.name}, {embedder.model.precision}"
        click.echo(f"{machine.describe()}\n\n    {_command()}\n\n{name}; intervals are Wilson's, of 95 %.\n")
        written = run_trials(_first(load_written(), limit), embedder)
        referred = run_trials(_first(references, limit), embedder)
        fresh = run_trials(load_written(FRESH), embedder)
    chosen = choose(written)
    _print("Written pairs", written, chosen)
    click.echo(fresh_detection(fresh).markdown())
    if referred:
        _print("Pairs of conversations", referred, chosen)
    if plot:
        from tests.bench.conflict_plot import draw  # imports matplotlib, which every test run would wait for

        draw(written, plot, title=f"Conflicts found among {len(written)} written pairs; {name}")


def _print(title: str, trials: Sequence[Trial], chosen: Thresholds) -> None:
    click.echo(f"## {title}\n\n{len(trials)} pairs; {_counts(trials)}.\n")
    for table in report(trials, chosen):
        click.echo(table.markdown())


def _first(pairs: Sequence[Pair], limit: int | None) -> list[Pair]:
    """This many of each label in each half, so that even a few pairs fill every table."""
    taken: Counter[tuple[Half, Label]] = Counter()
    kept = []
    for pair in pairs:
        taken[pair.half, pair.label] += 1
        if limit is None or taken[pair.half, pair.label] <= limit:
            kept.append(pair)
    return kept


def _counts(trials: Sequence[Trial]) -> str:
    counts = Counter((trial.pair.half, trial.pair.label) for trial in trials)
    return "; ".join(f"{half}: {', '.join(f'{counts[half, label]} {label}' for label in Label)}" for half in Half)


def _command() -> str:
    return " ".join(["python -m tests.bench.conflicts", *sys.argv[1:]])


if __name__ == "__main__":
    main()
