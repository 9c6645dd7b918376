"""Coverage tells which languages a model reads, and hybrid search then relies on the words."""

import pytest
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.coverage import coverage
from mnemon_server.knowledge_store import InMemoryStore

READ_BY_BOTH = ("What did the doctor say about her knee?", "Wann beginnt die nächste Sitzung des Vereins?")
READ_BY_ONE = (
    "ماذا قال الطبيب عن ركبتها؟",
    "Что врач сказал о её колене?",
    "医生对她的膝盖说了什么？",
    "彼女の膝について医者は何と言いましたか。",
    "의사는 그녀의 무릎에 대해 뭐라고 말했습니까?",
    "หมอพูดอะไรเกี่ยวกับเข่าของเธอ",
)
LATIN = frozenset({"LATIN"})
READ_BY_NONE = ("डॉक्टर ने उसके घुटने के बारे में क्या कहा?", "Τι είπε ο γιατρός για το γόνατό της;")


@pytest.mark.parametrize("text", [*READ_BY_BOTH, "", "42 + 7 = ?"])
def test_text_that_a_model_reads_is_covered(int8_embedder: Embedder, universal_embedder: Embedder, text: str) -> None:
    assert int8_embedder.coverage(text) > 0.5
    assert universal_embedder.coverage(text) > 0.5


@pytest.mark.parametrize("text", READ_BY_ONE)
def test_text_that_only_one_model_reads(int8_embedder: Embedder, universal_embedder: Embedder, text: str) -> None:
    assert int8_embedder.coverage(text) < 0.1
    assert universal_embedder.coverage(text) > 0.3


@pytest.mark.parametrize("text", READ_BY_NONE)
def test_text_that_neither_model_reads(int8_embedder: Embedder, universal_embedder: Embedder, text: str) -> None:
    assert int8_embedder.coverage(text) < 0.1
    assert universal_embedder.coverage(text) < 0.1


@pytest.mark.parametrize("text", ["TV", "Bo", "mysql", "K8s", "2FA", "7 pm", "Is it on?", "QX-4471-B", "a3f9c2e17b"])
def test_a_few_letters_of_a_script_that_a_model_reads_are_no_evidence(
    int8_embedder: Embedder, universal_embedder: Embedder, text: str
) -> None:
    assert int8_embedder.coverage(text) > 0.7
    assert universal_embedder.coverage(text) > 0.7


@pytest.mark.parametrize("text", ["кот", "ねこ", "강아지"])
def test_a_few_letters_of_a_script_that_a_model_lacks_are(
    int8_embedder: Embedder, universal_embedder: Embedder, text: str
) -> None:
    assert int8_embedder.coverage(text) < 0.1
    assert universal_embedder.coverage(text) > 0.6


@pytest.mark.parametrize(
    "text", [*READ_BY_BOTH, *READ_BY_ONE, *READ_BY_NONE, "кот", "ねこ", "γάτα", "बिल्ली", "42 + 7 = ?"]
)
def test_the_model_of_a_hundred_languages_reads_them_all(multilingual_embedder: Embedder, text: str) -> None:
    assert multilingual_embedder.coverage(text) > 0.5


def test_one_han_character_is_no_long_token_and_two_are() -> None:
    assert coverage("医生说", [(0, 1), (1, 2), (2, 3)], LATIN) == 0.0
    assert coverage("医生说", [(0, 2), (2, 3)], LATIN) == 1.0


def test_a_question_with_a_foreign_name_is_in_its_own_language() -> None:
    assert coverage("Internet2是什么时候成立的？", [(0, 8)], LATIN) < 0.3
    assert coverage("Who founded 京东?", [(0, 3), (4, 11)], LATIN) > 0.6


@pytest.mark.parametrize(
    ("question", "answer", "same_letters"),
    [
        ("Когда встреча?", "Встреча во вторник в десять часов утра.", "Кадог чавстре?"),
        ("متى موعد الاجتماع؟", "موعد الاجتماع يوم الثلاثاء في الساعة العاشرة.", "تىم دعوم ماعتجالا؟"),
    ],
)
async def test_hybrid_search_follows_the_words_where_the_model_sees_only_letters(
    question: str, answer: str, same_letters: str
) -> None:
    async with InMemoryStore() as store:
        await store.index_document("answer", answer)
        await store.index_document("same letters", same_letters)
        found = await store.search(question)
        assert [result.doc_id for result in found] == ["answer", "same letters"]
        assert found[0].score > 2 * found[1].score
