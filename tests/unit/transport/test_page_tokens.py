"""Page tokens are opaque, and good for nothing but their own query."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.errors import InvalidPageTokenError
from mnemon_server.transport.page_tokens import make_page_token, read_page_token


@given(st.integers(0, 2**63 - 1), st.binary(max_size=64))
def test_a_token_gives_back_its_position_and_is_safe_in_a_url(position: int, query: bytes) -> None:
    token = make_page_token(position, query)
    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert read_page_token(token, query) == position


def test_no_token_is_the_first_page() -> None:
    assert read_page_token("", b"query") == 0


@given(st.integers(0, 2**40), st.data())
def test_a_token_with_one_letter_changed_is_refused(position: int, data: st.DataObject) -> None:
    token = make_page_token(position, b"query")
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_ é=+"))
    damaged = token[:at] + letter + token[at + 1 :]
    if _bytes(damaged) == _bytes(token):  # the last letter carries bits that mean nothing
        return
    with pytest.raises(InvalidPageTokenError):
        read_page_token(damaged, b"query")


@pytest.mark.parametrize("text", ["x", "null", "AAAA", "🦉", "a" * 10_000, "====", " "])
def test_what_is_no_token_is_refused_with_the_field_and_the_way_out(text: str) -> None:
    with pytest.raises(InvalidPageTokenError, match="page_token: must be the next_page_token of the page before"):
        read_page_token(text, b"query")


def test_a_token_of_another_query_is_refused() -> None:
    with pytest.raises(InvalidPageTokenError):
        read_page_token(make_page_token(7, b"query"), b"another query")


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
