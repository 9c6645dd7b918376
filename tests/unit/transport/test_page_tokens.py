"""Page tokens are opaque, and valid only for their own query in their own vault."""

import base64
import re
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon.v1 import episodic_pb2 as pb
from mnemon.v1 import facts_pb2, memory_pb2
from mnemon_server.domain.errors import InvalidPageTokenError
from mnemon_server.domain.events import EventPosition
from mnemon_server.transport.servicers.page_tokens import PageTokens, Place

KEY = b"the secret of one vault"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
LABELS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1)


def token_of(last: Place | None, request: Any = None, key: bytes = KEY) -> str:
    return PageTokens(key, memory_pb2.ListMemoriesRequest() if request is None else request).next(last)


def given_with(token: str, key: bytes = KEY, **fields: Any) -> PageTokens:
    return PageTokens(key, memory_pb2.ListMemoriesRequest(page_token=token, **fields))


@given(st.integers(0, 2**63))
def test_a_token_gives_back_its_position_and_is_safe_in_a_url(position: int) -> None:
    token = token_of(position)
    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert given_with(token).position() == position


@given(LABELS)
def test_a_token_of_namespaces_gives_back_its_labels(labels: list[str]) -> None:
    token = token_of(tuple(labels), facts_pb2.ListNamespacesRequest())
    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert PageTokens(KEY, facts_pb2.ListNamespacesRequest(page_token=token)).labels() == tuple(labels)


@given(st.integers(-(2**63), 2**63 - 1), TEXT)
def test_a_token_gives_back_the_position_of_an_event(time_us: int, event_id: str) -> None:
    position = EventPosition(time_us, event_id)
    token = token_of(position, pb.ListRecentEventsRequest())
    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert PageTokens(KEY, pb.ListRecentEventsRequest(page_token=token)).event_position() == position


def test_lists_have_a_first_and_a_last_page() -> None:
    first = given_with("")
    assert (first.position(), first.event_position(), first.labels()) == (0, None, ())
    assert first.next(None) == ""


@given(st.integers(0, 2**40), st.data())
def test_a_token_with_one_letter_changed_is_refused(position: int, data: st.DataObject) -> None:
    token = token_of(position)
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_ é=+"))
    damaged = token[:at] + letter + token[at + 1 :]
    if _bytes(damaged) == _bytes(token):  # the last letter carries unused bits
        return
    with pytest.raises(InvalidPageTokenError):
        given_with(damaged).position()


@pytest.mark.parametrize("text", ["x", "null", "AAAA", "🦉", "a" * 10_000, "A" * 1_000_000, "====", " "])
def test_an_invalid_token_is_refused_with_the_field_and_advice(text: str) -> None:
    for read in (given_with(text).position, given_with(text).event_position, given_with(text).labels):
        with pytest.raises(InvalidPageTokenError, match="page_token: must be the next_page_token of the previous page"):
            read()


def test_a_token_of_another_query_or_another_vault_is_refused() -> None:
    token = token_of(7)
    assert given_with(token).position() == 7
    with pytest.raises(InvalidPageTokenError):
        given_with(token, show_deleted=True).position()
    with pytest.raises(InvalidPageTokenError):
        given_with(token, key=b"the secret of another").position()


def test_a_token_of_another_list_is_refused_even_if_both_requests_are_empty() -> None:
    events = token_of(EventPosition(7, "lunch"), pb.ListRecentEventsRequest())
    with pytest.raises(InvalidPageTokenError):
        given_with(events).position()


@pytest.mark.parametrize("position", [0, 2**63, 2**64 - 1])
def test_a_token_cannot_be_made_without_the_key(position: int) -> None:
    place, query = position.to_bytes(8), b""
    digest = blake2b(len(place).to_bytes(4) + place + query, digest_size=12, person=b"mnemon page").digest()
    with pytest.raises(InvalidPageTokenError):
        given_with(base64.urlsafe_b64encode(place + digest).rstrip(b"=").decode()).position()


def test_the_page_size_may_change_from_page_to_page() -> None:
    token = PageTokens(KEY, pb.QueryWindowRequest(last_days=7, limit=5), "limit").next(EventPosition(1, "a"))
    later = pb.QueryWindowRequest(last_days=7, limit=9, page_token=token)
    assert PageTokens(KEY, later, "limit").event_position() == EventPosition(1, "a")
    other = pb.QueryWindowRequest(last_days=8, page_token=token)
    with pytest.raises(InvalidPageTokenError):
        PageTokens(KEY, other, "limit").event_position()


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
