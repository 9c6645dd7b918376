"""Texts to index and queries to search for: generated from a seed, or mixed from conversations. All are distinct."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench.conversations import load_conversations

_COMMON_TEXT = """
the and to of a i it in that you is was for we on have my with but this so at be they are as just me had what not
about like all were out he she from there been up when or really can if one your more some time how would get
"""
_PLAIN_TEXT = """
account adventure afternoon airport album animal answer apartment apple art autumn baby bag balance band beach
bicycle bird birthday book bottle box branch bread breakfast bridge brother budget building camera camp candle
career castle cat chair chance change charity child choice church circle city class client cloud coach coffee color
company concert cookie cooking corner cottage country course cousin dance daughter deadline decision degree dinner
doctor dog door dream driver engine evening exam family farm father festival field film fire fish flower forest
friend game garden gift glass goal grandmother group guitar hair hand harbor health heart hike history hobby holiday
home horse hospital hotel house idea interview island jacket job journey kitchen lake lamp language laptop lesson
letter library light list lunch machine market meal medicine meeting memory message mirror moment money morning
mother mountain movie museum music neighbor network news night notebook number nurse ocean office orange order page
paint paper parcel parent park party passport path patient pencil phone photo piano picture plan plant plate poem
pool present price problem project question radio rain recipe report restaurant ring river road roof room school
science sea season secret server shelf shirt shoe shop show singer sister sky snow song soup speech sport spring
stage station stone story street student study summer sun surprise table tea teacher team tent test theater ticket
town toy trail train tree trip truck uncle valley vase video village visit voice volunteer walk wall watch water
weather wedding week wheel wind window winter wood work workshop writer year yoga
"""
_COMMON, _PLAIN = _COMMON_TEXT.split(), _PLAIN_TEXT.split()
_SHARES = (0.45, 0.47, 0.08)
"""Of common words, of plain ones, and of the rare ones that are put together from two plain ones."""

_WORDS_MEDIAN, _WORDS_SPREAD = 24, 0.7
_WORDS_MIN, _WORDS_MAX = 3, 170


@dataclass(frozen=True, slots=True)
class Workload:
    """The source of texts and queries. Each call returns new ones."""

    description: str
    next_texts: Callable[[int], list[str]]
    next_queries: Callable[[int], list[str]]


def written(seed: int) -> Workload:
    """English-looking texts: words by Zipf's law, lengths log-normal around 24 words."""
    rng = np.random.default_rng(seed)
    groups = (_COMMON, rng.permutation(_PLAIN).tolist(), [first + second for first, second in product(_PLAIN, _PLAIN)])
    words = np.array([word for group in groups for word in group])
    shares = np.concatenate([share * _zipf(len(group)) for share, group in zip(_SHARES, groups, strict=True)])

    def texts(count: int) -> list[str]:
        lengths = rng.lognormal(np.log(_WORDS_MEDIAN), _WORDS_SPREAD, count).round().astype(int)
        lengths = lengths.clip(_WORDS_MIN, _WORDS_MAX)
        drawn = iter(rng.choice(words, p=shares, size=int(lengths.sum())).tolist())
        return [_sentence([next(drawn) for _ in range(length)]) for length in lengths.tolist()]

    def queries(count: int) -> list[str]:
        lengths = rng.integers(5, 13, size=count).tolist()
        return [f"what {' '.join(rng.choice(words, p=shares, size=length).tolist())}?" for length in lengths]

    return Workload(f"texts written from seed {seed}, {_WORDS_MEDIAN} words in the median", texts, queries)


def mixed(folder: Path, seed: int) -> Workload | None:
    """New texts made of halves of two turns of conversations, and the conversations' questions."""
    conversations = load_conversations(folder)
    if not conversations:
        return None
    rng = np.random.default_rng(seed)
    turns = [turn.document.split() for conversation in conversations for turn in conversation.turns]
    questions = [question.text for conversation in conversations for question in conversation.questions]
    unasked = iter([questions[i] for i in rng.permutation(len(questions))])

    def texts(count: int) -> list[str]:
        pairs = rng.integers(len(turns), size=(count, 2)).tolist()
        return [" ".join([*_first_half(turns[one]), *_second_half(turns[other])]) for one, other in pairs]

    def queries(count: int) -> list[str]:
        return [question for _, question in zip(range(count), unasked, strict=False)]

    return Workload(f"halves of {len(turns):,} turns of conversations, put together anew", texts, queries)


def _zipf(count: int) -> NDArray[np.float64]:
    # Flat at its head: a real text has more distinct words than these, and its rare ones are not in every passage.
    shares: NDArray[np.float64] = 1 / np.arange(30, count + 30)
    shares /= shares.sum()
    return shares


def _sentence(words: Sequence[str]) -> str:
    return f"{' '.join(words).capitalize()}."


def _first_half(words: list[str]) -> list[str]:
    return words[: (len(words) + 1) // 2]


def _second_half(words: list[str]) -> list[str]:
    return words[len(words) // 2 :]
