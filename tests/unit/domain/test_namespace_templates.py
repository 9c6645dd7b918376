"""Namespaces made from configurations: by a template, or from the default keys."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.namespaces import NamespaceTemplate, default_namespace, namespace_resolver

LABELS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0."), max_size=20).map("x".__add__)


@pytest.mark.parametrize(
    ("configuration", "namespace"),
    [
        ({"user_id": "u-123"}, ("user", "u-123")),
        ({"org_id": "acme", "agent_id": "alpha"}, ("org", "acme", "alpha")),
        ({"org_id": "acme"}, ("org", "acme")),
        ({"agent_id": "alpha"}, ("agent", "alpha")),
        ({"org_id": "acme", "user_id": "u"}, ("org", "acme", "user", "u")),
        ({"org_id": "acme", "agent_id": "alpha", "user_id": "u"}, ("org", "acme", "alpha", "user", "u")),
        ({"user_id": "u", "agent_id": "alpha"}, ("user", "u", "agent", "alpha")),
    ],
)
def test_without_a_template_the_default_keys_make_the_namespace(
    configuration: dict[str, str], namespace: tuple[str, ...]
) -> None:
    unrelated = {"thread_id": "t.1", "tags": ["x"]}
    assert default_namespace({**configuration, **unrelated}) == namespace
    assert default_namespace({"configurable": {**configuration, **unrelated}}) == namespace
    assert namespace_resolver()(configuration) == namespace


@pytest.mark.parametrize(
    ("configuration", "described"),
    [
        ({}, "it has no keys"),
        ({"configurable": {}}, "it has no keys"),
        ({"thread_id": "secret", "configurable": {"b": "secret"}}, "its keys are 'b', 'thread_id'"),
        ({f"k{number:02}": "" for number in range(21)}, "'k19', ..."),
    ],
)
def test_without_any_default_key_the_existing_keys_are_named(configuration: dict[str, Any], described: str) -> None:
    with pytest.raises(ConfigurationError, match="needs 'org_id', 'user_id' or 'agent_id'; ") as caught:
        default_namespace(configuration)
    assert str(caught.value).endswith(described)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("user", ["", None, 7.5, float(1 << 53), True, ["u"], {"id": "u"}, "x" * 257, "\0"])
def test_a_user_that_is_not_a_label_is_refused_and_never_left_out(user: object) -> None:
    """If it were left out, the user's records would be written where the whole organisation reads."""
    with pytest.raises(ConfigurationError, match="the configuration's 'user_id' must "):
        default_namespace({"org_id": "acme", "user_id": user})


@pytest.mark.parametrize(
    ("user", "label"),
    [
        ("ada@example.org", "ada@example.org"),
        (7, "7"),
        (7.0, "7"),
        (1 << 60, str(1 << 60)),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ],
)
def test_mail_addresses_whole_numbers_and_uuids_are_labels(user: object, label: str) -> None:
    assert default_namespace({"user_id": user, "agent_id": "gpt-4.1"}) == ("user", label, "agent", "gpt-4.1")


def test_placeholders_are_filled_at_run_time() -> None:
    template = NamespaceTemplate(("{user_id}", "memories"))
    assert template.keys == ("user_id",)
    assert template.resolve({"user_id": "u-123"}) == ("u-123", "memories")
    assert template.resolve({"configurable": {"user_id": "u-124"}}) == ("u-124", "memories")


def test_a_missing_key_is_named_with_the_existing_keys() -> None:
    with pytest.raises(ConfigurationError) as caught:
        NamespaceTemplate(("{user_id}", "memories")).resolve({"org_id": "secret", "configurable": {"agent_id": "x"}})
    assert str(caught.value) == "the configuration lacks 'user_id'; its keys are 'agent_id', 'org_id'"
    assert not isinstance(caught.value, ValueError)


def test_a_label_without_braces_is_literal() -> None:
    assert namespace_resolver(("memories", "user_id"))({"user_id": "u"}) == ("memories", "user_id")
    assert namespace_resolver("memories")({}) == ("memories",)
    assert namespace_resolver("{user_id}")({"user_id": "u"}) == ("u",)


@pytest.mark.parametrize("label", ["user-{user_id}", "{user_id", "user_id}", "{}", "{{user_id}}", "{a}{b}", "{a} "])
def test_braces_that_do_not_enclose_the_whole_label_are_refused(label: str) -> None:
    """Taken literally, they would put all users into one namespace."""
    with pytest.raises(ConfigurationError, match="must be one key in braces"):
        NamespaceTemplate(("memories", label))


@pytest.mark.parametrize("labels", [(), ("",), ("a",) * 17, (1,)])
def test_a_template_that_can_never_be_filled_is_refused_at_once(labels: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        NamespaceTemplate(labels)


def test_the_value_of_a_placeholder_is_not_expanded_again() -> None:
    template = NamespaceTemplate(("{user_id}", "{org_id}"))
    assert template.resolve({"user_id": "{org_id}", "org_id": "acme"}) == ("{org_id}", "acme")


def test_a_key_given_twice_must_have_one_value() -> None:
    template = NamespaceTemplate(("{user_id}",))
    assert template.resolve({"user_id": "u", "configurable": {"user_id": "u"}}) == ("u",)
    with pytest.raises(ConfigurationError, match="gives 'user_id' twice"):
        template.resolve({"user_id": "u", "configurable": {"user_id": "v"}})
    with pytest.raises(ConfigurationError, match="gives 'org_id' twice"):
        default_namespace({"org_id": "u", "configurable": {"org_id": None}})


def test_labels_that_are_too_long_in_total_are_refused() -> None:
    template = NamespaceTemplate(("{a}", "{a}", "{a}", "{a}"))
    assert len(template.resolve({"a": "x" * 255})) == 4
    with pytest.raises(ConfigurationError, match="all 4 labels together"):
        template.resolve({"a": "x" * 256})


@given(LABELS, LABELS)
def test_two_users_never_share_a_namespace(one: str, other: str) -> None:
    for resolve in (namespace_resolver(), namespace_resolver(("{user_id}", "memories"))):
        first, second = resolve({"user_id": one}), resolve({"user_id": other})
        assert (first == second) is first.is_within(second) is (one == other)
