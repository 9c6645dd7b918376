"""How two statements relate, told without a language model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.conflicts import Relation, RelationType
from mnemon_server.services.conflicts.relation_features import FEATURES, TEXT_MAX, features, read
from mnemon_server.services.conflicts.signals import default_relations

SAME, UPDATES, CONTRADICTS, UNRELATED = RelationType


def relation(left: str, right: str, cosine: float) -> Relation | None:
    """The relation by the shipped weights."""
    return default_relations().relate(left, right, cosine)


@pytest.mark.parametrize(
    ("left", "right", "cosine", "expected"),
    [
        ("Ada works as a baker in Lyon.", "Ada is a baker in Lyon.", 0.95, SAME),
        ("She keeps a tortoise in the garden.", "She keeps a tortoise in the garden!", 0.99, SAME),
        ("The course has 14 places.", "The course has 25 places.", 0.93, UPDATES),
        ("Ada drinks milk.", "Ada never drinks milk.", 0.85, CONTRADICTS),
        ("Ada may park in the yard.", "Ada is not allowed to park in the yard.", 0.84, CONTRADICTS),
        ("His uncle plays the harp.", "His nephew plays the harp.", 0.66, UNRELATED),
        ("Ada likes horses.", "The contract ends on Monday.", 0.05, UNRELATED),
        ("Bought a lamp in March.", "Bought a chair in June.", 0.62, UNRELATED),
        ("Ada has a meeting on Monday.", "Ada has a meeting on Thursday.", 0.97, UNRELATED),
        ("The meeting is on 3 May.", "The meeting is on 4 May.", 0.97, UPDATES),
        ("There is a concert on Friday.", "There is a party on Saturday.", 0.6, UNRELATED),
        ("Ada has a job interview at a bank.", "Ada has a job interview at a zoo in May.", 0.8, SAME),
        ("We plant roses.", "We plant tulips.", 0.8, UNRELATED),
        ("Ada lives in Munich now.", "Ada speaks French.", 0.53, UNRELATED),
        ("Jonas no longer smokes.", "Jonas is a nurse.", 0.6, UNRELATED),
        ("Ada lives in Munich.", "Ada has moved to Oslo.", 0.7, UPDATES),
        ("Jonas is single.", "Jonas is engaged to Mia.", 0.7, UPDATES),
        ("We plant cornflowers.", "We plant cornflowres.", 0.9, SAME),
        ("Clara is allergic to cats.", "Clara is no longer allergic to dogs.", 0.8, UNRELATED),
        ("Clara is allergic to cats.", "Clara is no longer allergic to cats.", 0.9, CONTRADICTS),
        ("Jonas uses Emacs.", "Jonas uses Vim instead.", 0.8, UPDATES),
        ("Ada was born in 1980.", "Ada was born in 1981.", 0.95, UPDATES),
        ("Jonas works in Geneva.", "Jonas works in Lyon.", 0.8, UPDATES),
        ("Jonas works in Geneva.", "Jonas's brother works in Lyon.", 0.6, UNRELATED),
        ("Clara's studio is in Ghent.", "Clara's house is in Bruges.", 0.8, UNRELATED),
        ("Clara's visa expires in 2028.", "Clara's library card expires in 2030.", 0.8, UNRELATED),
        ("My aunt lives in Porto.", "My wife's aunt lives in Faro.", 0.8, UNRELATED),
        ("My aunt's name is Vera.", "My uncle's name is Bruno.", 0.8, UNRELATED),
        ("My blue kayak leaks.", "My green kayak is in the shed.", 0.8, UNRELATED),
        ("Jonas has lived in Malmö.", "Jonas has lived in Turin.", 0.85, UNRELATED),
        ("Jonas worked at a zoo from 2003 to 2008.", "Jonas worked at a port from 2008 to 2011.", 0.8, UNRELATED),
        ("Ada works on Wednesdays.", "Ada works on Saturdays.", 0.9, UNRELATED),
        ("Clara met Olaf in Graz.", "Clara met Jutta in Bregenz.", 0.8, UNRELATED),
        ("My phone number is 5512.", "My phone number is 7733.", 0.9, UPDATES),
        ("Anna Weber lives in Graz.", "Anna Becker lives in Oslo.", 0.8, UNRELATED),
        ("Hans Weber lives in Graz.", "Anna Weber lives in Oslo.", 0.8, UNRELATED),
        ("Uncle Hans lives in Graz.", "Uncle Peter lives in Oslo.", 0.8, UNRELATED),
        ("Mrs. Weber never eats fish.", "Mrs. Becker eats fish.", 0.8, UNRELATED),
        ("Herr Weber wohnt in Graz.", "Herr Becker wohnt in Oslo.", 0.8, UNRELATED),
        ("María José vive en Graz.", "María Elena vive en Oslo.", 0.8, UNRELATED),
        ("Anna Weber lives in Graz.", "Anna Weber lives in Oslo.", 0.8, UPDATES),
        ("Anna Weber lives in Graz.", "Anna lives in Oslo.", 0.8, UPDATES),
        ("Clara's postal address is 3 Elm Lane.", "Clara's holiday address is 9 Fir Road.", 0.8, UNRELATED),
        ("Clara's cousin sings.", "Clara's other cousin paints.", 0.8, UNRELATED),
        ("Invoice 2041 was paid.", "Invoice 2042 was cancelled.", 0.85, UNRELATED),
        ("The kitchen faces north.", "The bedroom faces south.", 0.8, UNRELATED),
        ("The call with Olaf is at two.", "The call with Jutta is at four.", 0.85, UNRELATED),
        ("The call is at two.", "The call is at four.", 0.9, UPDATES),
        ("Clara works at Lindt.", "Clara works as a taster.", 0.8, UNRELATED),
        ("Clara works at Lindt.", "Clara works for Suchard now.", 0.8, UPDATES),
        ("I like tripe.", "My niece doesn't like tripe.", 0.8, UNRELATED),
        ("We take 5 ml of syrup.", "We take 2 ml of cod oil.", 0.8, UNRELATED),
        ("My mum lives in Bonn now.", "My mother lives in Mainz.", 0.8, UPDATES),
    ],
)
def test_statements_relate(left: str, right: str, cosine: float, expected: RelationType) -> None:
    found = relation(left, right, cosine)
    assert found is not None
    assert found.type is expected
    assert found.related > 0.5 or expected is UNRELATED


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Catherine Weber lives in Graz.", "Katherine Weber lives in Graz."),
        ("Anna Weber lives in Graz.", "Anna lives in Graz."),
        ("The Webers live in Graz.", "The Beckers live in Graz."),
    ],
)
def test_only_full_names_tell_people_apart(left: str, right: str) -> None:
    assert any(features(read(left), read(right), 0.8))


def test_the_probability_is_that_of_the_type_and_not_above_that_of_any_relation() -> None:
    found = relation("The course has 14 places.", "The course has 25 places.", 0.93)
    assert found is not None
    assert 0.0 < found.probability < found.related < 1.0


@pytest.mark.parametrize("empty", ["", "  ", "?!", "🎈🎈", "she was there"])
def test_a_text_without_telling_words_has_no_relation(empty: str) -> None:
    assert relation(empty, "Ada likes horses.", 0.9) is None


@pytest.mark.parametrize(
    ("left", "right"),
    [("ฉันชอบดื่มกาแฟ", "แมวของเขาชื่อสมชาย"), ("Она любит лошадей.", "Договор заканчивается весной."), ("𓀀𓀁 𓀂𓀃", "𓁐𓁑 𓁒𓁓")],
)
def test_vectors_alone_relate_no_texts_in_a_script_that_the_model_may_not_read(left: str, right: str) -> None:
    found = relation(left, right, 0.97)
    assert found is None or found.type is UNRELATED


def test_shared_words_relate_texts_in_any_script() -> None:
    found = relation("Она живёт в Москве.", "Она теперь живёт в Москве.", 0.97)
    assert found is not None
    assert found.type is not UNRELATED


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    text = "Ada likes horses. " * TEXT_MAX
    assert read(text) == read(text[:TEXT_MAX])


TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            "Ada",
            "Ben's",
            "she",
            "never",
            "likes",
            "14",
            "twenty",
            "harp",
            "May",
            "June",
            "in",
            "brother",
            "was",
            "東京",
            "жизнь",
            "the",
        ]
    ),
    max_size=8,
).map(" ".join)


@given(TEXTS, TEXTS, st.floats(-1, 1))
def test_features_are_fractions_and_symmetric(left: str, right: str, cosine: float) -> None:
    found = features(read(left), read(right), cosine)
    assert len(found) == len(FEATURES)
    assert all(0.0 <= value <= 1.0 for value in found)
    assert found == features(read(right), read(left), cosine)
