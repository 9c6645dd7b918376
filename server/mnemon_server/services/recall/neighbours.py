"""Finds the turns around the messages in a recall.

A question is useless without its answer, which often shares no word with it ("What's your blood type?", "A
negative."), and a statement is misleading without the correction that follows. So the context shows the reply to each
question, and the turns around the best messages.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from mnemon_server.domain.conversations import ConversationKey
from mnemon_server.domain.events import MESSAGE_TYPE, EventSelection
from mnemon_server.domain.origins import without_origin
from mnemon_server.domain.recall import RecallItem, RecordReference
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.services.events.selections import selection
from mnemon_server.services.reading.pages import PAGE_BYTES_MAX
from mnemon_server.services.recall.kinds import of_event

AROUND_BEST = 3
"""How many of the best messages are shown with the turns around them; other questions get only their reply."""
READ_BEFORE, READ_AFTER = 2, 5
"""How many messages are read before and after one. Tool calls and their results are skipped."""
TURNS_AFTER = 3
"""How many turns after one of the best messages are shown; a correction may follow a confirmation."""
SILENT_ROLES = frozenset({"system", "tool"})

_QUESTION_MARKS = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}", "\N{GREEK QUESTION MARK}")


class Turns(NamedTuple):
    """The turns to show around a message, in the order of the conversation."""

    after: Sequence[RecallItem]
    before: Sequence[RecallItem]


Neighbours = Mapping[RecordReference, Turns]
"""By message."""


def is_question(text: str) -> bool:
    """Whether a text ends with a question mark."""
    return text.rstrip().endswith(_QUESTION_MARKS)


def neighbours(
    events: EventEngine, where: Callable[[ConversationKey], EventSelection], found: Sequence[RecallItem]
) -> Neighbours:
    """The turns to show around each message among the items, which are the most relevant first. Blocks.

    `where` selects the messages of a conversation that may be shown.
    """
    messages = [item for item in found if item.conversation and item.type == MESSAGE_TYPE]
    best = messages[:AROUND_BEST]
    shown = [*best, *(item for item in messages[AROUND_BEST:] if is_question(item.content))]
    of_conversation = defaultdict[ConversationKey, list[RecallItem]](list)
    for item in shown:
        key = ConversationKey(scope=without_origin(item.scope), conversation_id=item.conversation)
        of_conversation[key].append(item)
    around: dict[RecordReference, list[int]] = {}
    for key, items in of_conversation.items():
        sequences = events.sequences(selection(where(key)))
        for item, place in zip(items, np.searchsorted(sequences, [item.sequence for item in items]), strict=True):
            around[item.record] = sequences[max(place - READ_BEFORE, 0) : place + READ_AFTER + 1].tolist()
    named = sorted({*chain.from_iterable(around.values())})
    read = map(of_event, events.read(named, bytes_max=PAGE_BYTES_MAX)) if named else ()
    turns = {item.sequence: item for item in read if item.content.strip() and item.source not in SILENT_ROLES}
    beside = {}
    for item in shown:
        there = [turns[each] for each in around[item.record] if each in turns]
        after = [turn for turn in there if turn.sequence > item.sequence]
        before = [turn for turn in there if turn.sequence < item.sequence]
        is_best = item in best
        beside[item.record] = Turns(after[: TURNS_AFTER if is_best else 1], before[-1:] if is_best else [])
    return beside


def with_neighbours(told: Sequence[RecallItem], beside: Neighbours) -> list[RecallItem]:
    """The items in packing order: each question with its replies first, then the other turns."""
    ordered, others = list[RecallItem](), list[RecallItem]()
    for item in told:
        around = [beside[record] for record in (item.record, *item.duplicates) if record in beside]
        replies = chain.from_iterable(turns.after[:1] for turns in around if is_question(item.content))
        ordered += [item, *replies]
        # The next turn matters more than the previous one.
        others += chain.from_iterable((*turns.after[:1], *turns.before, *turns.after[1:]) for turns in around)
    known = {record: item for item in told for record in (item.record, *item.duplicates)}
    distinct = {each.record: each for each in (known.get(item.record, item) for item in (*ordered, *others))}
    return list(distinct.values())
