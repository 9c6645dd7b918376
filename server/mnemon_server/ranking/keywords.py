"""Splits texts into words: CJK characters in pairs, and queries without the stop words of English."""

import re
import unicodedata

from mnemon_server.ranking.languages import STOP_WORDS

QUERY_TERMS_MAX = 256

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
HANGUL = "\uac00-\ud7a3"
_CJK_RUN = re.compile(f"[{HAN}{KANA}{HANGUL}]+")
_WIDTH_FORMS = re.compile("[\uff00-\uffef]+")
_WORD = re.compile(r"[^\W_]+")


def analyze(text: str) -> str:
    """The text with each run of CJK characters as overlapping pairs: "東京都" becomes "東京 京都". A single one stays.

    Other text is only normalised: composed characters, and full-width forms to normal width. An index that was filled
    by a different version of this function must be rebuilt, because its entries could not be deleted.
    """
    if text.isascii():
        return text
    text = _WIDTH_FORMS.sub(lambda run: unicodedata.normalize("NFKC", run[0]), unicodedata.normalize("NFC", text))
    return _CJK_RUN.sub(_pairs, text)


def query_terms(text: str) -> list[str]:
    """The distinct words of a query, in lower case and in order, at most 256. Stop words are left out unless the query
    has no other words.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(analyze(text)))
    telling = [word for word in words if word not in STOP_WORDS]
    return (telling or list(words))[:QUERY_TERMS_MAX]


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    pairs = [characters[i : i + 2] for i in range(len(characters) - 1)]
    return f" {' '.join(pairs or [characters])} "
