"""The length in a row's id is the number of words that the table itself finds."""

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.keywords.scoring import LENGTH_BITS, length_code

ascii_texts = st.text(st.characters(min_codepoint=1, max_codepoint=0x7F))
texts = st.one_of(ascii_texts, st.text(st.characters(codec="utf-8", exclude_characters="\0")))


@settings(max_examples=300, derandomize=True, deadline=None)
@given(text=texts)
def test_words_are_counted_as_the_tokenizer_counts_them(text: str) -> None:
    connection = apsw.Connection(":memory:")
    tables = fts.KeywordTables("some")
    for statement in fts.create_with_texts(tables):
        connection.execute(statement)
    fts.insert(connection, tables, {5: text})
    [(row,)] = connection.execute(f"SELECT rowid FROM {tables.index}")
    assert row >> LENGTH_BITS == 5
    [words] = connection.execute(f"SELECT count(*) FROM {tables.terms}").fetchall()
    assert row & ((1 << LENGTH_BITS) - 1) == length_code(*words)
