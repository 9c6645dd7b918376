"""Values are short in a prompt, and answers are tables in a notebook."""

from datetime import UTC, datetime

import pytest
from mnemon import Document, Memory, MemoryPage, Scope

NOON = datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC)


SEVEN = MemoryPage(tuple(Memory(str(number)) for number in range(7)), "")
FIVE = ", ".join(f"Memory(content='{number}')" for number in range(5))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Scope(user="ada"), "Scope(user='ada')"),
        (Document("a", "x" * 500), f"Document(doc_id='a', content='{'x' * 79}…')"),
        (
            Document("a", "b", {"at": NOON}),
            "Document(doc_id='a', content='b', metadata={'at': 2026-05-01 12:00:00+00:00})",
        ),
        (SEVEN, f"MemoryPage(memories=[{FIVE}, … 2 more], next_page_token='')"),
    ],
)
def test_a_value_shows_what_is_set_and_cuts_what_is_long(value: object, shown: str) -> None:
    assert repr(value) == shown


def test_a_page_is_a_table_of_its_records_in_a_notebook() -> None:
    page = MemoryPage((Memory("<b>Tea.</b>", user="ada"), Memory("Coffee.", metadata={"n": 1})), "")

    assert page._repr_html_() == (
        "<table><thead><tr><th>content</th><th>user</th><th>metadata</th></tr></thead><tbody>"
        "<tr><td>&lt;b&gt;Tea.&lt;/b&gt;</td><td>ada</td><td></td></tr>"
        "<tr><td>Coffee.</td><td></td><td>{&#x27;n&#x27;: 1}</td></tr></tbody></table>"
    )
    assert page.memories[0]._repr_html_() is None
