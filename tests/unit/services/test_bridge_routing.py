"""Which events become statements, and how long content is truncated."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.bridge import PruneAction, RoutingMode, RoutingPolicy
from mnemon_server.domain.semantic import ConflictPolicy
from mnemon_server.services.bridge.routing import (
    policy_of,
    policy_values,
    policy_violations,
    shortened,
    skip_reason,
    statement_of,
)

from tests.support.bridge_stores import happening

ANY = RoutingPolicy(mode=RoutingMode.ANY)


@pytest.mark.parametrize(
    ("policy", "event_type", "importance", "reason"),
    [
        (RoutingPolicy(), "task", 0.6, None),
        (RoutingPolicy(), "reminder", 1.0, None),
        (RoutingPolicy(), "conversation", 0.75, None),
        (RoutingPolicy(), "task", 0.59, "importance"),
        (RoutingPolicy(), "task", None, "importance"),
        (RoutingPolicy(), "mood", 0.9, "event_type"),
        (RoutingPolicy(), "mood", 0.1, "importance"),
        (RoutingPolicy(min_importance=0.0), "task", None, "importance"),
        (RoutingPolicy(min_importance=0.0), "task", 0.0, None),
        (RoutingPolicy(event_types=frozenset({"mood"})), "mood", 0.9, None),
        (RoutingPolicy(event_types=frozenset({"mood"})), "task", 0.9, "event_type"),
        (ANY, "task", 0.1, None),
        (ANY, "task", None, None),
        (ANY, "mood", 0.6, None),
        (ANY, "mood", 0.59, "importance"),
    ],
)
def test_importance_and_type_decide_as_the_mode_says(
    policy: RoutingPolicy, event_type: str, importance: float | None, reason: str | None
) -> None:
    assert skip_reason(policy, event_type, importance) == reason


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ("sixteen letters.", "sixteen letters."),
        ("   sixteen letters.   ", "sixteen letters."),
        ("it is fifteen and more", "it is fifteen…"),
        ("it is fourteen, and more", "it is fourteen,…"),
        ("a Donaudampfschifffahrtsgesellschaft", "a Donaudampfsch…"),
        ("名前は山田です。東京に住んでいます。犬を飼っています", "名前は山田です。東京に住んでい…"),
        ("\n\t one two three four five", "one two three…"),
    ],
)
def test_truncated_content_ends_with_a_word_and_an_ellipsis(content: str, kept: str) -> None:
    assert shortened(content, 16) == kept


@given(st.text(min_size=1).filter(str.strip), st.integers(16, 40))
def test_truncated_content_is_never_blank_nor_too_long_and_begins_like_the_original(content: str, most: int) -> None:
    kept = shortened(content, most)
    assert len(kept) <= most
    assert kept.strip()
    if kept != content:
        assert content.strip().startswith(kept.removesuffix("…"))
    if len(content) <= most:
        assert kept == content


def test_a_statement_has_the_content_of_its_event_and_names_its_source() -> None:
    event = happening("e1", "Ada moved to Oslo", source="diary")
    memory = statement_of(event, RoutingPolicy())
    assert (memory.content, memory.scope, memory.importance) == (event.content, event.scope, event.importance)
    assert (memory.source, memory.create_time) == ("diary", event.event_time)
    assert memory.metadata == {"episodic_event_ids": ("e1",)}
    assert statement_of(replace(event, source=""), RoutingPolicy()).source == "conversation"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"min_importance": 1.1}, "policy.min_importance"),
        ({"min_importance": float("nan")}, "policy.min_importance"),
        ({"demoted_importance": -0.1}, "policy.demoted_importance"),
        ({"content_max": 15}, "policy.content_max"),
        ({"content_max": 65_537}, "policy.content_max"),
        ({"event_types": frozenset(map(str, range(65)))}, "policy.event_types"),
        ({"event_types": frozenset({" "})}, "policy.event_types"),
        ({"event_types": frozenset({"t" * 129})}, "policy.event_types"),
    ],
)
def test_errors_in_a_policy_are_named(change: dict[str, Any], field: str) -> None:
    assert [violation.field for violation in policy_violations(replace(RoutingPolicy(), **change))] == [field]


def test_the_stored_form_of_a_policy_is_stable() -> None:
    policy = RoutingPolicy(
        min_importance=0.25,
        event_types=frozenset({"b", "a"}),
        mode=RoutingMode.ANY,
        content_max=64,
        on_prune=PruneAction.DEMOTE,
        demoted_importance=0.0,
        conflict_policy=ConflictPolicy.RESOLVE,
    )
    assert not list(policy_violations(policy))
    kept = policy_of(policy_values(replace(policy, revision=7)))
    assert (kept, kept.revision) == (policy, 7)


def test_a_policy_stored_before_there_were_revisions_has_the_first() -> None:
    values = policy_values(RoutingPolicy(content_max=99))
    del values["revision"]
    assert (policy_of(values).content_max, policy_of(values).revision) == (99, 1)
