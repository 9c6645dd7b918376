"""Page tokens are opaque, and good for nothing but their own query."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon.v1 import episodic_pb2 as pb
from mnemon_server.domain.episodic import EventPosition
from mnemon_server.domain.errors import InvalidPageTokenError
from mnemon_server.transport.servicers.page_tokens import (
    make_page_token,
    next_event_token,
    next_namespace_token,
    page_query,
    read_event_token,
    read_namespace_token,
    read_page_token,
)


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


LABELS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1), min_size=1)


@given(LABELS)
def test_a_token_of_namespaces_gives_back_its_labels(labels: list[str]) -> None:
    token = next_namespace_token(tuple(labels), b"query")
    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert read_namespace_token(token, b"query") == tuple(labels)


def test_namespaces_have_a_first_and_a_last_page() -> None:
    assert next_namespace_token(None, b"query") == ""
    assert read_namespace_token("", b"query") == ()


def test_a_token_of_namespaces_is_good_for_its_own_query_only() -> None:
    token = next_namespace_token(("user", "ada"), b"query")
    with pytest.raises(InvalidPageTokenError):
        read_namespace_token(token, b"other")
    with pytest.raises(InvalidPageTokenError):
        read_namespace_token(make_page_token(2**63 + 255, b"query"), b"query")


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None


@given(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=64))
def test_a_token_gives_back_the_place_of_an_event_and_is_safe_in_a_url(time_us: int, event_id: str) -> None:
    position = EventPosition(time_us, event_id)
    token = next_event_token(position, b"query")
    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert read_event_token(token, b"query") == position
    with pytest.raises(InvalidPageTokenError):
        read_event_token(token, b"another query")


def test_no_place_is_no_token_and_the_other_way_round() -> None:
    assert next_event_token(None, b"query") == ""
    assert read_event_token("", b"query") is None


@pytest.mark.parametrize("text", ["x", "AAAA", "🦉", "A" * 1_000_000, "====", make_page_token(7, b"")[:-1]])
def test_what_is_no_place_of_an_event_is_refused(text: str) -> None:
    with pytest.raises(InvalidPageTokenError, match="page_token"):
        read_event_token(text, b"query")


def test_a_place_in_one_list_is_none_in_a_list_of_another_kind() -> None:
    with pytest.raises(InvalidPageTokenError):
        read_page_token(next_event_token(EventPosition(7, "lunch"), b"query"), b"query")


def test_the_size_of_a_page_may_change_from_page_to_page() -> None:
    first, second = (pb.QueryWindowRequest(last_days=7, top_k=size) for size in (5, 9))
    assert page_query(first, "top_k") == page_query(second, "top_k")
    other = pb.QueryWindowRequest(last_days=8)
    assert page_query(first, "top_k") != page_query(other, "top_k")
