"""Short texts: ids, tags and the fields of a scope."""

from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.validation import is_text, text_violations


@given(st.text(st.sampled_from("a0é€\0\ud800"), max_size=12), st.integers(0, 12))
def test_a_text_is_valid_exactly_if_nothing_is_wrong_with_it(text: str, bytes_max: int) -> None:
    assert is_text(text, bytes_max) == (not list(text_violations(text, "name", bytes_max)))
