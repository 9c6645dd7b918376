"""Words in every language: which forms of a word find each other, in texts and in short queries."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.ranking.analysis import QUERY_TERMS_MAX, STEMMED_WORDS


def finds(query: str, text: str) -> bool:
    """Whether the text has every word of the query."""
    held, groups = set(STEMMED_WORDS.terms(text)), STEMMED_WORDS.query(query).groups
    return bool(groups) and all(held.intersection(group) for group in groups)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("boats", "She was rowing the boat."),
        ("March 14th", "14 March 2026"),
        ("march 3", "Ann's birthday is on March 3rd."),
        ("the 21st", "Rent is due on 21 June."),
        ("2140", "It costs 2,140 euros."),
        ("2,140", "It costs 2140 euros."),
        ("2140", "Es kostet 2.140,50 Euro."),
        ("1200000", "1'200'000 Franken"),
        ("2140", "Cela coûte 2\u202f140 €."),
        ("140", "It costs 2,140 euros."),
        ("Häuser", "Das Haus steht an der Straße."),
        ("strasse", "Das Haus steht an der Straße."),
        ("Schluessel", "Der Schlüssel liegt auf dem Tisch."),
        ("Haus", "Er liegt seit gestern im Krankenhaus."),
        ("niño", "Los niños comen manzanas."),
        ("nino", "Los niños comen manzanas."),
        ("maisons", "La maison est dans la rue."),
        ("câinii", "Un câine aleargă prin parc și latră."),
        ("kitap", "O kitaplar çok güzel ve eski."),
        ("ışık", "IŞIKLAR çok güzel bir şey."),
        ("istanbul", "İSTANBUL çok güzel bir şehir."),
        ("ho chi minh", "Thành phố Hồ Chí Minh là một thành phố lớn."),
        ("Hồ Chí Minh", "Thành phố Hồ Chí Minh là một thành phố lớn."),
        ("город", "Русские города и реки"),
        ("елка", "Новогодняя ёлка"),
        ("αθηνα", "Η Αθήνα έχει πολλούς δρόμους"),
        ("δρόμος", "Η Αθήνα έχει πολλούς δρόμους"),
        ("كتاب", "الكتاب على الطاولة"),
        ("الكتاب", "كِتاب جديد"),
        ("किताब", "मुझे किताबें पसंद हैं"),
        ("แมว", "ฉันรักแมวดำ"),
        ("ดำ", "ฉันรักแมวดำ"),
        ("ພາສາ", "ຂ້ອຍເວົ້າພາສາລາວ"),
        ("猫", "黒猫が好き"),
        ("京", "東京都"),
        ("東京", "昨日は東京都庁に行きました"),
        ("특별시", "서울특별시에 살아요"),
        ("ABC", "ＡＢＣ１２ ＡＢＣ"),
        ("contract", "Sign the con\u00adtract."),
        ("contract", "Sign the con-\ntract."),
        ("contract", "Sign the con\u00ad\r\n  tract."),
        ("contract", "Sign the con\u2060t\u200br\u200dact."),
        ("con\u00adtract", "Sign the contract."),
        ("well known", "a well-\nknown brand"),
        ("می\u200cخواهم", "من می\u200cخواهم"),
        ("خواهم", "من می\u200cخواهم"),
        ("user name", "Call getUserName() first."),
        ("getusername", "Call getUserName() first."),
        ("getUserName", "Call get_user_name first."),
        ("server", "It is an HTTPServer."),
        ("balancer", "the load_balancer"),
        ("load-balancer", "the load_balancer"),
        ("loadBalancer", "the load-balancer"),
        ("wifi", "Das Wi\u2011Fi für Gäste"),
        ("wifi", "the Wi-Fi password"),
        ("PDFs", "a PDF"),
        ("🎉", "Party!🎉🎉"),
        ("where is the 🍕?", "We order 🍕 tonight"),
        ("👍🏿", "Well done 👍🏽"),
        ("💻", "the developer 👩🏽\u200d💻"),
        ("❤\ufe0f", "I ❤ Bern"),
        ("❤", "I ❤\ufe0f Bern"),
        ("🇨🇭", "from 🇩🇪🇨🇭"),
        ("1\ufe0f\u20e3", "number 1"),
        ("Is the report due? 🎉", "The report is due on Monday."),
    ],
)
def test_another_form_of_a_word_finds_the_text(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("किताब", "मुझे कमल पसंद है"),
        ("หมา", "ฉันรักแมวดำ"),
        ("東京", "京都の東"),
        ("house", "The horse is there."),
        ("YouTube", "a tube of glue for you"),
        ("ab", "plan a - b is next"),
        ("ab", "plan a-\n\nb is next"),
        ("🎉", "Party! 🍕"),
        ("🇪🇨", "from 🇩🇪🇨🇭"),
        ("❤\ufe0f", "the ☀\ufe0f is out"),
    ],
)
def test_other_words_do_not_find_it(query: str, text: str) -> None:
    assert not finds(query, text)


def test_vowel_signs_belong_to_their_word() -> None:
    assert len(STEMMED_WORDS.terms("हिन्दी भाषा")) == 2


def test_the_accents_of_vietnamese_tell_words_apart() -> None:
    held = set(STEMMED_WORDS.terms("Tôi không thấy má ở đó."))
    same, other = (held.intersection(STEMMED_WORDS.query(f"không thấy {word}").terms) for word in ("má", "mà"))
    assert same - other == {"má"}
    assert "ma" in other


def test_a_query_in_english_has_no_variants() -> None:
    groups = STEMMED_WORDS.query("What did the Doctor say about the rains?").groups
    assert groups == [("doctor",), ("sai",), ("rain",)]


def test_a_query_that_tells_no_language_is_read_in_all() -> None:
    [variants] = STEMMED_WORDS.query("Wanderungen").groups
    assert {"wanderungen", "wander"} <= set(variants)


def test_stop_words_of_other_languages_are_left_out() -> None:
    asked = STEMMED_WORDS.query("Wie heißt der Hund von meiner Schwester?").terms
    assert not {"wie", "der", "von"} & set(asked)
    assert "hund" in asked


def test_a_few_words_that_are_stop_words_elsewhere_are_kept() -> None:
    assert len(STEMMED_WORDS.query("ho chi minh").groups) == 3


def test_a_query_has_a_bounded_number_of_words() -> None:
    assert len(STEMMED_WORDS.query(" ".join(f"w{i}" for i in range(10_000))).groups) == QUERY_TERMS_MAX


@given(st.text())
def test_no_term_of_a_query_is_in_two_words(text: str) -> None:
    terms = STEMMED_WORDS.query(text).terms
    assert len(terms) == len(set(terms))


def test_terms_do_not_depend_on_the_process() -> None:
    """Entries of an index could not be deleted if another process split their text into other words."""
    texts = ["die man var en de", "la casa no es mas", "o de a e um por se", "in van is was hit", "det er en av de"]
    script = (
        f"from mnemon_server.ranking.analysis import STEMMED_WORDS as w\nprint(*map(w.prepare, {texts!r}), sep='|')"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in range(4)
    }
    assert len(outputs) == 1


def test_a_very_long_word_is_one_term() -> None:
    assert STEMMED_WORDS.terms("Straße und " + "ä" * 5_000)[-1] == "a" * 5_000
