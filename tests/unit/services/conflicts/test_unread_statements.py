"""Statements in a script that the server's own model does not read: all look alike to it, and none may be lost."""

from collections.abc import Iterator

import pytest
from mnemon import Mnemon, SemanticMemory
from mnemon_server.config.settings import Settings

STATEMENTS = {
    "Greek": ("Μου αρέσει ο καφές", "Η κόρη μου λέγεται Ελένη", "Μένω στην Αθήνα"),
    "Korean": ("저는 커피를 좋아해요", "제 딸 이름은 수진이에요", "저는 부산에 살아요"),
    "Bengali": ("আমি কফি পছন্দ করি", "আমার মেয়ের নাম মিতা", "আমি ঢাকায় থাকি"),
    "Hebrew": ("אני אוהב קפה", "לבת שלי קוראים נועה", "אני גר בחיפה"),
    "Khmer": ("ខ្ញុំចូលចិត្តកាហ្វេ", "កូនស្រីខ្ញុំឈ្មោះសុភា", "ខ្ញុំរស់នៅភ្នំពេញ"),
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mnemon]:
    with Mnemon(tmp_path_factory.mktemp("memory"), embedding_model=Settings().embedding_model) as opened:
        yield opened


@pytest.mark.parametrize("language", STATEMENTS)
def test_they_are_all_kept(memory: Mnemon, language: str) -> None:
    for statement in STATEMENTS[language]:
        assert memory.conflicts.preview(SemanticMemory(statement, user=language)).decision is None
        assert memory.semantic.add(statement, user=language, conflict_policy="resolve").decision is None
    known = [each.content for each in memory.semantic.list(user=language)]
    assert sorted(known) == sorted(STATEMENTS[language])


@pytest.mark.parametrize("language", STATEMENTS)
def test_their_vectors_are_no_sign_of_a_conflict(memory: Mnemon, language: str) -> None:
    first, second, _ = STATEMENTS[language]
    memory.semantic.add(first, user=f"{language} user")
    assert not memory.conflicts.detect(SemanticMemory(second, user=f"{language} user")).conflicts


def test_contradictions_in_languages_that_it_reads_in_part_are_still_settled(memory: Mnemon) -> None:
    memory.semantic.add("Ich wohne in Hamburg.", user="ben")
    assert memory.semantic.add("Ich wohne jetzt in München.", user="ben", conflict_policy="resolve").decision
