"""The tables of the measurements on labelled pairs, in Markdown."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mnemon_server.domain.conflicts import ArbitrationConfig, DetectionConfig, MergeConfig, SignalType

from tests.bench.classification import Answers, Share
from tests.bench.conflict_pairs import Half, Label, Outcome
from tests.bench.conflict_trials import Trial, detection_answers, only

SEMANTIC, KEYWORD = SignalType.SEMANTIC, SignalType.KEYWORD
THRESHOLDS = tuple(step / 20 for step in range(4, 20))
"""0.2 to 0.95."""
PRECISION_MIN = 0.9
"""What thresholds must have to be chosen: a false alarm can cost a statement."""
DEFAULTS = DetectionConfig()
SENTENCE_THRESHOLD = MergeConfig().deduplication_threshold
RELATED = only(SignalType.RELATION)
EITHER = only(SEMANTIC, KEYWORD)
ANY_DECIDES = DetectionConfig(required_signals=frozenset(SignalType) - {SignalType.RELATION})


@dataclass(frozen=True, slots=True)
class Table:
    """A heading, a sentence, and rows of cells."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"### {self.title}\n\n{self.note}\n\n{table}\n"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds of the semantic and the keyword signal."""

    semantic: float
    keyword: float

    @property
    def config(self) -> DetectionConfig:
        """The two signals with these thresholds."""
        return only(SEMANTIC, KEYWORD, semantic=self.semantic, keyword=self.keyword)


def report(trials: Sequence[Trial], chosen: Thresholds) -> list[Table]:
    """All tables for one set of pairs, with the default and the chosen thresholds, for each half."""
    return [
        _detection(trials, chosen),
        _kinds(trials),
        _deduplication(trials),
        _decisions(trials),
        _outcomes(trials),
        _side_signals(trials),
        _thresholds(trials),
    ]


def choose(trials: Sequence[Trial]) -> Thresholds:
    """The thresholds that find most in the choosing half with a precision of `PRECISION_MIN`, the highest among equals.

    If none reaches it, those with the best precision.
    """
    choosing = in_half(trials, Half.CHOOSING)

    def worth(bounds: Thresholds) -> tuple[float, int, float, float]:
        answers = detection_answers(choosing, bounds.config)
        precision = answers.precision.value if answers.precision.of else 0.0
        return min(precision, PRECISION_MIN), answers.true_positives, bounds.semantic, bounds.keyword

    return max((Thresholds(semantic, keyword) for semantic in THRESHOLDS for keyword in THRESHOLDS), key=worth)


def in_half(trials: Sequence[Trial], half: Half) -> list[Trial]:
    """The trials of a half."""
    return [trial for trial in trials if trial.pair.half is half]


def _detection(trials: Sequence[Trial], chosen: Thresholds) -> Table:
    configs = {
        f"semantic > {DEFAULTS.semantic_threshold:g}": only(SEMANTIC),
        f"keyword > {DEFAULTS.keyword_threshold:g}": only(KEYWORD),
        "either: the defaults": EITHER,
        f"either, semantic > {chosen.semantic:g}, keyword > {chosen.keyword:g}": chosen.config,
        f"relation > {DEFAULTS.relation_threshold:g}": RELATED,
    }
    return Table(
        "Detection",
        "A conflict is right for paraphrases and contradictions, wrong for unrelated pairs. The last row has the "
        f"thresholds that find most in the choosing half of the written pairs with a precision of {PRECISION_MIN:g}; "
        "they are not the defaults.",
        ["fires by", *_BOTH_HALVES],
        [
            [name, *_per_half(trials, lambda half, config=config: detection_answers(half, config))]
            for name, config in configs.items()
        ]
        + [["a save acts", *_per_half(trials, _acted_on)]]
        + [["a judge that is always right", *_per_half(trials, _judged)]],
    )


def fresh_detection(trials: Sequence[Trial]) -> Table:
    """How pairs are detected on which nothing was chosen, in neither half."""
    configs = {"either: the defaults": EITHER, f"relation > {DEFAULTS.relation_threshold:g}": RELATED}
    answers = {name: detection_answers(trials, config) for name, config in configs.items()}
    answers["a save acts"] = _acted_on(trials)
    return Table(
        "Detection of fresh pairs",
        f"{len(trials)} pairs that were written and labelled last, before anything was measured on them.",
        ["fires by", "precision", "recall"],
        [[name, _cell(found.precision), _cell(found.recall)] for name, found in answers.items()],
    )


def _acted_on(trials: Sequence[Trial]) -> Answers:
    return Answers.of((trial.is_acted_on, trial.pair.agree_or_clash) for trial in trials)


def _judged(trials: Sequence[Trial]) -> Answers:
    return Answers.of((trial.is_found_by_perfect_judge, trial.pair.agree_or_clash) for trial in trials)


def _kinds(trials: Sequence[Trial]) -> Table:
    reported = in_half(trials, Half.REPORTING)
    groups = {f"**{label}**": [trial for trial in reported if trial.pair.label is label] for label in Label}
    for label in Label:
        members = [trial for trial in reported if trial.pair.label is label]
        for kind in dict.fromkeys(trial.pair.kind for trial in members):
            groups[f"{label}: {kind}"] = [trial for trial in members if trial.pair.kind == kind]
    configs = (only(SEMANTIC), only(KEYWORD), EITHER, RELATED)
    return Table(
        "Conflicts found, by kind",
        "Pairs of the reporting half for which the default signals fire, those for which the relation model finds a "
        "conflict, and those for which it names the right relation.",
        ["pairs", "number", "semantic", "keyword", "either", "relation", "right relation"],
        [
            [
                name,
                str(len(group)),
                *(str(sum(trial.fires(config) for trial in group)) for config in configs),
                str(sum(trial.has_right_relation for trial in group)),
            ]
            for name, group in groups.items()
        ],
    )


def _deduplication(trials: Sequence[Trial]) -> Table:
    def hash_against(right: Callable[[Trial], bool]) -> Callable[[list[Trial]], Answers]:
        return lambda half: Answers.of((trial.is_duplicate, right(trial)) for trial in half)

    def sentences(threshold: float, *, guard: bool) -> Callable[[list[Trial]], Answers]:
        return lambda half: Answers.of(
            (trial.drops_a_sentence(threshold, guard=guard), _is_paraphrase(trial)) for trial in half
        )

    measured = {
        "content hash, same text": hash_against(lambda trial: trial.pair.kind == "same-text"),
        "content hash, paraphrase": hash_against(_is_paraphrase),
        **{
            f"a sentence left out at {threshold:g}{how}, paraphrase": sentences(threshold, guard=guard)
            for threshold, guard, how in (
                (0.6, True, ""),
                (SENTENCE_THRESHOLD, True, " (default)"),
                (1.0, True, ""),
                (SENTENCE_THRESHOLD, False, " without the guard"),
            )
        },
    }  # fmt: skip
    return Table(
        "De-duplication",
        "The hash answers with the first statement; a merge leaves out sentences that the other side has. After the "
        "comma stands what it is to find.",
        ["by", *_BOTH_HALVES],
        [[name, *_per_half(trials, answers)] for name, answers in measured.items()],
    )


def _decisions(trials: Sequence[Trial]) -> Table:
    names = {Outcome.LEFT: "the known one stays", Outcome.RIGHT: "the new one takes its place"}
    return Table(
        "Decisions",
        "A save with the default rule, all four signals: what is left of the two. Precision: of the pairs that it was "
        "decided for, those for which it is right. Recall: of the pairs for which nothing else is right, those that it "
        "was decided for.",
        ["what is left", *_BOTH_HALVES],
        [
            *(
                [names.get(outcome, str(outcome)), *_per_half(trials, lambda half, one=outcome: _decided(half, one))]
                for outcome in Outcome
            ),
            ["any: right", *_accuracies(trials, DEFAULTS)],
            ["any: right, if any signal could decide", *_accuracies(trials, ANY_DECIDES)],
        ],
    )


def _decided(trials: Sequence[Trial], outcome: Outcome) -> Answers:
    decided = [(_outcome(trial), trial.pair.expected) for trial in trials if trial.pair.expected]
    hits = sum(said is outcome and outcome in expected for said, expected in decided)
    wrong = sum(said is outcome and outcome not in expected for said, expected in decided)
    missed = sum(said is not outcome and expected == {outcome} for said, expected in decided)
    only_right = sum(said is outcome and expected == {outcome} for said, expected in decided)
    return _Decided(hits, wrong, missed, len(decided) - hits - wrong - missed, only_right)


def _outcomes(trials: Sequence[Trial]) -> Table:
    reported = [trial for trial in in_half(trials, Half.REPORTING) if trial.pair.expected]
    rows = {str(label): [trial for trial in reported if trial.pair.label is label] for label in Label}
    rows["of the paraphrases, partial-overlap"] = [t for t in reported if t.pair.kind == "partial-overlap"]
    counted = {name: Counter(map(_outcome, group)) for name, group in rows.items()}
    return Table(
        "What was decided, by label",
        "Pairs of the reporting half that have times.",
        ["pairs", "known one", "new one", "merged", "both", "right"],
        [
            [name, *(str(counts[outcome]) for outcome in Outcome), str(_accuracy(rows[name]))]
            for name, counts in counted.items()
        ],
    )


def _side_signals(trials: Sequence[Trial]) -> Table:
    timed = [trial for trial in trials if trial.comparison.time_delta is not None]
    unrelated = [trial for trial in timed if not trial.pair.agree_or_clash]
    groups = {"paraphrase or contradiction": [t for t in timed if t.pair.agree_or_clash], "unrelated": unrelated}
    configs = (only(SignalType.TIME), only(SignalType.IMPORTANCE), EITHER, DEFAULTS)
    return Table(
        "What time and importance add",
        "Pairs of the reporting half with times, for which the signals of the default rule fire. How many were saved "
        "within minutes of each other is the set's choice, so these shares say nothing of real ones.",
        ["pairs", "number", "time", "importance", "semantic or keyword", "any"],
        [
            [
                name,
                str(len(in_half(group, Half.REPORTING))),
                *(str(sum(t.fires(config) for t in in_half(group, Half.REPORTING))) for config in configs),
            ]
            for name, group in groups.items()
        ],
    )


def _thresholds(trials: Sequence[Trial]) -> Table:
    def row(threshold: float) -> list[str]:
        configs = only(SEMANTIC, semantic=threshold), only(KEYWORD, keyword=threshold)
        cells = [
            f"{answers.precision.value:.2f} / {answers.recall.value:.2f}" if answers.precision.of else "- / 0.00"
            for config in configs
            for half in _HALVES
            for answers in [detection_answers(in_half(trials, half), config)]
        ]
        return [f"{threshold:g}", *cells]

    return Table(
        "Thresholds",
        "Precision / recall of each signal alone.",
        ["threshold", *(f"{signal}, {half}" for signal in ("semantic", "keyword") for half in _HALVES)],
        [row(threshold) for threshold in THRESHOLDS],
    )


@dataclass(frozen=True, slots=True)
class _Decided(Answers):
    """If several outcomes are right, recall is measured over the pairs with a single right one."""

    only_right: int

    @property
    def recall(self) -> Share:
        """The fraction of the pairs without another right outcome that were decided so."""
        return Share(self.only_right, self.only_right + self.false_negatives)


def _accuracies(trials: Sequence[Trial], detection: DetectionConfig) -> list[str]:
    """The fraction of right decisions in each half, below its precision."""
    return [cell for half in _HALVES for cell in (_cell(_accuracy(in_half(trials, half), detection)), "")]


def _accuracy(trials: Sequence[Trial], detection: DetectionConfig = DEFAULTS) -> Share:
    right = [_outcome(trial, detection) in trial.pair.expected for trial in trials if trial.pair.expected]
    return Share(sum(right), len(right))


def _outcome(trial: Trial, detection: DetectionConfig = DEFAULTS) -> Outcome:
    return trial.outcome(detection, ArbitrationConfig())


def _is_paraphrase(trial: Trial) -> bool:
    return trial.pair.label is Label.PARAPHRASE


def _per_half(trials: Sequence[Trial], answers: Callable[[list[Trial]], Answers]) -> list[str]:
    measured = [answers(in_half(trials, half)) for half in _HALVES]
    return [_cell(share) for each in measured for share in (each.precision, each.recall)]


def _cell(share: Share) -> str:
    return "none" if math.isnan(share.value) else f"{share} ({share.count}/{share.of})"


_HALVES = (Half.REPORTING, Half.CHOOSING)
_BOTH_HALVES = [f"{metric}, {half}" for half in _HALVES for metric in ("precision", "recall")]
