"""Namespaces: their labels and their text. No two are ever confused."""

import copy
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon.shared.namespaces import is_blank
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import record_id
from mnemon_server.domain.filters import Expression, matches
from mnemon_server.domain.namespaces import (
    LABEL_BYTES_MAX,
    LABELS_MAX,
    NAMESPACE_BYTES_MAX,
    Namespace,
    decode_namespace,
    encode_namespace,
    is_exactly,
    namespace_labels,
    namespace_text,
    starts_with,
)

from tests.support.colliding_namespaces import COLLIDING

# Few different characters, so that prefixes and equal joins occur often, and any others.
LABELS = st.one_of(
    st.text("ab.\\-/{}_%\u2024\u0301A", min_size=1, max_size=4),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
).filter(lambda label: not is_blank(label))
NAMESPACES = st.lists(LABELS, min_size=1, max_size=4).map(Namespace)


def selects(expression: Expression, namespace: Namespace) -> bool:
    text = encode_namespace(namespace)
    return matches(expression, lambda name: text if name == "namespace" else None)


def test_there_are_fifty_four_namespaces_built_to_collide() -> None:
    assert len(COLLIDING) == len(set(COLLIDING)) == 54


def test_a_namespace_is_the_tuple_of_its_labels() -> None:
    namespace = Namespace(["org", "acme", "alpha"])
    assert namespace == ("org", "acme", "alpha")
    assert hash(namespace) == hash(("org", "acme", "alpha"))
    assert type(copy.deepcopy(namespace)) is Namespace


def test_the_text_of_a_namespace_preserves_every_code_point() -> None:
    for labels in COLLIDING:
        assert tuple(decode_namespace(encode_namespace(Namespace(labels)))) == labels


def test_namespaces_built_to_collide_have_different_texts_and_record_ids() -> None:
    namespaces = [Namespace(labels) for labels in COLLIDING]
    assert len({encode_namespace(namespace) for namespace in namespaces}) == 54
    assert len({record_id(namespace, "k") for namespace in namespaces}) == 54
    assert len(set(namespaces)) == 54


def test_namespaces_built_to_collide_are_selected_alone_or_below_their_prefix() -> None:
    below = {(("tenant",), labels) for labels in COLLIDING if labels[0] == "tenant" and len(labels) > 1} | {
        (("tenant", "acme"), ("tenant", "acme", "corp")),
        (("tenant", "acme"), ("tenant", "acme", "acme")),
    }
    for one, other in product(map(Namespace, COLLIDING), repeat=2):
        expected = one == other or (tuple(other), tuple(one)) in below
        assert selects(is_exactly(other, "namespace"), one) is (tuple(one) == tuple(other)), (one, other)
        assert one.is_within(other) is expected, (one, other)
        assert selects(starts_with(other, "namespace"), one) is expected, (one, other)


def test_a_key_with_dots_is_not_a_label() -> None:
    assert record_id(Namespace(("a",)), "b.c") != record_id(Namespace(("a", "b")), "c")
    assert record_id(Namespace(("a",)), "b") == record_id(Namespace(["a"]), "b")


def test_the_stored_form_of_a_namespace_never_changes() -> None:
    assert encode_namespace(Namespace(("org", "acme"))) == "org.acme."
    assert record_id(Namespace(("org", "acm\u00e9")), "k") == (
        "6c93c6993b965f6c6b8d46c4cc47a591268b9c44e673d2144c64ce5d650aab0e"
    )


@given(NAMESPACES, NAMESPACES)
def test_every_namespace_is_read_from_what_people_write_and_none_is_written_as_another(
    one: Namespace, other: Namespace
) -> None:
    assert namespace_labels(namespace_text(one)) == one
    assert (namespace_text(one) == namespace_text(other)) is (one == other)


def test_a_dot_or_a_backslash_within_a_label_is_written_with_a_backslash() -> None:
    assert namespace_text(("user", "ada@example.org")) == r"user.ada@example\.org"
    assert namespace_text(("CORP\\ada",)) == r"CORP\\ada"
    assert namespace_labels(r"user.CORP\ada") == ("user", "CORP\\ada")


@given(NAMESPACES)
def test_every_namespace_can_be_parsed_from_its_text(namespace: Namespace) -> None:
    assert decode_namespace(encode_namespace(namespace)) == namespace


@given(NAMESPACES, NAMESPACES)
def test_one_text_starts_with_another_exactly_if_the_labels_do(one: Namespace, other: Namespace) -> None:
    by_labels = len(other) <= len(one) and all(left == right for left, right in zip(one, other, strict=False))
    assert one.is_within(other) is by_labels
    assert encode_namespace(one).startswith(encode_namespace(other)) is by_labels
    assert selects(starts_with(other, "namespace"), one) is by_labels
    assert (encode_namespace(one) == encode_namespace(other)) is (tuple(one) == tuple(other))


@given(NAMESPACES, st.lists(LABELS, max_size=3))
def test_a_child_is_within_its_namespace_but_not_the_other_way_round(namespace: Namespace, more: list[str]) -> None:
    below = Namespace((*namespace, *more))
    assert below.is_within(namespace)
    assert namespace.is_within(below) is (not more)


def test_every_namespace_is_within_the_empty_prefix() -> None:
    assert Namespace(("a",)).is_within(())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((), "namespace: must have 1 to 16 labels"),
        (("a",) * (LABELS_MAX + 1), "namespace: must have 1 to 16 labels"),
        (("a", ""), "namespace[1]: must not be empty"),
        ((1,), "namespace[0]: must be text, not int"),
        (("a", None), "namespace[1]: must be text, not NoneType"),
        (("a\0",), "namespace[0]: must be valid Unicode without U+0000"),
        (("\ud800",), "namespace[0]: must be valid Unicode without U+0000"),
        (("é" * 128 + "x",), "namespace[0]: must be at most 256 bytes of UTF-8"),
        (("x" * 256,) * 4, "namespace: all 4 labels together must be at most 1,020 bytes of UTF-8"),
        ("abc", "namespace: must be a sequence of labels, such as ('abc',)"),
    ],
)
def test_invalid_labels_are_named(labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Namespace(labels)
    assert str(caught.value) == message


def test_labels_at_the_limits_are_valid() -> None:
    assert len(Namespace(("a",) * LABELS_MAX)) == LABELS_MAX
    assert len(Namespace(("é" * 128,))[0].encode()) == LABEL_BYTES_MAX
    full = Namespace(("x" * 255,) * 4)
    assert len(encode_namespace(full)) == NAMESPACE_BYTES_MAX
    assert decode_namespace(encode_namespace(full)) == full


@pytest.mark.parametrize("text", ["", ".", "a", "a..", ".a.", "a.b", "a..b."])
def test_an_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="namespace"):
        decode_namespace(text)
