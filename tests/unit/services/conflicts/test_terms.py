"""Terms: what the keyword signal compares, and when two contents count as the same."""

import pytest
from mnemon_server.services.semantic.terms import content_hash, normalised_content, terms_of


@pytest.mark.parametrize(
    ("content", "terms"),
    [
        ("Anna drinks tea", {"anna", "drinks", "tea"}),
        ("I stay at a B&B", {"stay"}),  # I, a and B are one character long
        ("The cat is on the table.", {"cat", "table"}),
        ("Der Hund und die Katze schlafen im Garten.", {"hund", "katze", "schlafen", "garten"}),
        ("Anna vive con su hermana en una casa blanca.", {"anna", "vive", "hermana", "casa", "blanca"}),
        ("Кошка спит на столе, а собака в саду.", {"кошка", "спит", "столе", "собака", "саду"}),
        ("They die young in the war.", {"die", "young", "war"}),  # "die" is a stop word in German
        ("This is what it is.", set()),
        ("tea, Tea; TEA!", {"tea"}),
        ("snake_case e-mail", {"snake", "case", "mail"}),
        ("room 42, row 7", {"room", "42", "row"}),
        ("東京都", {"東京", "京都"}),
        ("東京", {"東京"}),
        ("茶", set()),  # one character alone is not a pair
        ("東京 tower", {"東京", "tower"}),
        ("東京tower", {"東京", "tower"}),
        ("カフェ", {"カフ", "フェ"}),
        ("ｶﾌｪ", {"カフ", "フェ"}),  # of half width
        ("한국어", {"한국", "국어"}),
        ("Ｔｅａ ﬁne", {"tea", "fine"}),  # NFKC: full width, ligature
        ("STRASSE Ärger", {"strasse", "ärger"}),
        ("A\u0308rger", {"ärger"}),  # decomposed
        ("हिन्दी", {"हिन्दी"}),  # vowel signs do not end a word
        ("İstanbul", {"i\u0307stanbul"}),
        ("🎉 !?", set()),
        ("", set()),
    ],
)
def test_without_keywords_the_telling_words_of_the_content_are_the_terms(content: str, terms: set[str]) -> None:
    assert terms_of((), content) == terms


def test_given_keywords_are_the_terms_in_lower_case_and_the_content_does_not_count() -> None:
    assert terms_of(("Tea", "New  York ", "ＴＥＡ", "x", "東京都", "The"), "Anna drinks coffee") == {
        "tea",
        "the",
        "new york",
        "x",
        "東京都",
    }


def test_blank_keywords_are_ignored() -> None:
    assert terms_of((" ", ""), "Anna drinks") == {"anna", "drinks"}


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("  Anna\t drinks\n\ntea ", "Anna drinks tea"),
        ("Ａｎｎａ", "Anna"),
        ("Anna\u00a0drinks\u3000tea", "Anna drinks tea"),
        ("A\u0308", "Ä"),
        ("Tea", "Tea"),  # the case stays
    ],
)
def test_normalised_content_has_one_form_of_each_character_and_single_spaces(text: str, normalised: str) -> None:
    assert normalised_content(text) == normalised


def test_contents_that_differ_only_in_form_and_white_space_have_the_same_hash() -> None:
    assert content_hash("anna", "", " Anna\ndrinks  ｔea") == content_hash("anna", "", "Anna drinks tea")


@pytest.mark.parametrize(
    "other",
    [
        ("ben", "work", "tea"),
        ("anna", "home", "tea"),
        ("anna", "work", "Tea"),
        ("annaw", "ork", "tea"),
        ("anna", "", "work tea"),
    ],
)
def test_another_user_persona_or_content_gives_another_hash(other: tuple[str, str, str]) -> None:
    assert content_hash(*other) != content_hash("anna", "work", "tea")


def test_a_hash_is_the_same_in_every_process() -> None:
    # sha256 of ["anna", "work", "Grüße"] as JSON in UTF-8
    expected = "a5153e86c61ca13e91ca0e397a30b033eb77f9e876f0e053e11c02a26e42e687"
    assert content_hash("anna", "work", "Grüße") == expected
