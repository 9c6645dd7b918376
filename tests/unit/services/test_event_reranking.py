"""Messages of a conversation in a search: what a turn says depends on the one before it."""

from collections.abc import Mapping, Sequence

import pytest
from mnemon_server.domain.events import WindowQuery
from mnemon_server.domain.records import SearchMode
from mnemon_server.services.search.reranking import Ranker, default_ranker
from mnemon_server.wire.events import decode

from tests.support.episodic_stores import happening, open_event_store
from tests.support.memory_stores import NOON

QUERY = "When did Anna adopt the dog?"
ASKED, TOLD = "Anna, when did you adopt the dog?", "it was the dog on Sunday"
TALK = (("Ben", "hello"), ("Anna", "the dog is fine"), ("Ben", ASKED), ("Anna", TOLD))


async def scores(
    talk: Sequence[tuple[str, str]],
    ranker: Ranker | None,
    *,
    conversations: Sequence[str] = (),
    mode: SearchMode = SearchMode.HYBRID,
) -> Mapping[str, float]:
    """The scores of what somebody said, by text. Everything is of one conversation, unless others are named."""
    async with open_event_store(ranker=ranker) as opened:
        named = conversations or ["c"] * len(talk)
        said = [
            happening(text, NOON, metadata={"speaker": speaker}, conversation=conversation)
            for (speaker, text), conversation in zip(talk, named, strict=True)
        ]
        await opened.store.record(said)
        page = await opened.store.window(WindowQuery(text=QUERY, limit=10, mode=mode, last_days=30))
        return {
            decode(event.body).content: score.relevance for event, score in zip(page.events, page.scores, strict=True)
        }


async def test_the_answer_to_a_matching_question_rises_and_the_question_falls() -> None:
    plain, ranked = await scores(TALK, None), await scores(TALK, default_ranker())
    assert ranked[TOLD] > plain[TOLD]
    assert ranked[ASKED] < plain[ASKED]
    assert ranked["the dog is fine"] == plain["the dog is fine"]


@pytest.mark.parametrize("conversations", [("a", "a", "a", "b"), ("a", "a", "b", "a")])
async def test_a_question_of_another_conversation_has_no_answer_here(conversations: Sequence[str]) -> None:
    plain = await scores(TALK, None, conversations=conversations)
    ranked = await scores(TALK, default_ranker(), conversations=conversations)
    assert ranked[TOLD] == plain[TOLD]


async def test_events_without_speakers_and_other_modes_keep_their_scores() -> None:
    notes = [("", text) for _, text in TALK]
    assert await scores(notes, default_ranker()) == await scores(notes, None)
    for mode in (SearchMode.VECTOR, SearchMode.KEYWORD):
        assert await scores(TALK, default_ranker(), mode=mode) == await scores(TALK, None, mode=mode)


async def test_messages_to_an_assistant_may_end_with_a_question() -> None:
    talk = [("user", ASKED), ("assistant", TOLD)]
    assert await scores(talk, default_ranker()) == await scores(talk, None)
