"""Properties of all merge rules: loading an export restores them, and no cycle is ever accepted."""

import json
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from mnemon_server.domain.errors import CircularInheritanceError
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.rules.inheritance import resolved_to_dict
from mnemon_server.services.rules.schema import merged

from tests.support.rules import Registry

SHARES = st.floats(0, 1)
NAMES = st.text("ab.é", min_size=1, max_size=4)
USERS = st.sampled_from(["ada", "bob", "eve"])
CANDIDATES = st.builds(
    lambda user, importance: SemanticMemory("", "", scope=Scope(user=user), importance=importance),
    USERS,
    st.none() | SHARES,
)


def objects(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these keys."""
    return st.fixed_dictionaries({}, optional=values)


BODIES = objects(
    description=st.sampled_from(["", "what it is for"]),
    priority=st.integers(-2, 2),
    enabled=st.booleans(),
    conditions=objects(users=st.lists(USERS, min_size=1, max_size=2), importance_min=SHARES),
    detection=objects(semantic_threshold=SHARES, signals=st.just(["time", "semantic"])),
    arbitration=objects(
        merge_threshold=SHARES,
        weights=objects(recency=SHARES, source=SHARES),
        source_priority=st.dictionaries(NAMES, st.integers(0, 10), max_size=3),
    ),
    merge=objects(keep_history=st.booleans(), content_strategy=st.sampled_from(["smart", "replace"])),
)


@st.composite
def registries(draw: st.DrawFn) -> Registry:
    """Registries whose rules extend each other without cycles, registered and then changed."""
    names = ["default", *draw(st.lists(NAMES.filter(lambda name: name != "default"), max_size=6, unique=True))]
    registry = Registry()
    registry.load([{**draw(BODIES), "name": name} for name in draw(st.permutations(names))])
    for number, name in enumerate(names):
        if number and draw(st.booleans()):
            registry.update(name, {"extends": draw(st.sampled_from(names[:number]))})
    return registry


@seed(4)
@given(registries(), registries(), st.lists(CANDIDATES, max_size=5))
@settings(max_examples=60, deadline=None)
def test_an_export_loads_back_to_the_same_registry(
    registry: Registry, other: Registry, candidates: list[SemanticMemory]
) -> None:
    exported = json.loads(json.dumps(registry.export()))
    loaded = Registry()
    loaded.load(exported)
    other.load(exported, replace_all=True)
    for copy in (loaded, other):
        assert copy == registry
        assert copy.export() == registry.export()
        for rule in exported:
            assert copy.resolve(rule["name"]) == registry.resolve(rule["name"])
        for candidate in candidates:
            assert copy.find_matching(candidate) == registry.find_matching(candidate)


@seed(4)
@given(registries(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_rules_that_inherit_load_in_any_order(registry: Registry, random: Any) -> None:
    exported = registry.export()
    shuffled = random.sample(exported, len(exported))
    loaded = Registry()
    loaded.load(shuffled)
    for rule in exported:
        assert loaded.resolve(rule["name"]) == registry.resolve(rule["name"])


@seed(4)
@given(registries(), st.integers(1, 60), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_cycle_of_any_length_is_refused_and_changes_nothing(
    registry: Registry,
    length: int,
    random: Any,
    lenient: bool,  # noqa: FBT001
) -> None:
    before, version = registry.export(), registry.version
    names = [f"link {number}" for number in range(length)]
    circle = [{"name": name, "extends": names[number - 1]} for number, name in enumerate(names)]
    with pytest.raises(CircularInheritanceError) as caught:
        registry.load([{"name": "apart"}, *random.sample(circle, length)], lenient=lenient)
    assert len(caught.value.names) == length + 1
    for name, base in zip(caught.value.names[:-1], caught.value.names[1:], strict=True):
        assert {"name": name, "extends": base} in circle
    assert (registry.export(), registry.version) == (before, version)


@seed(4)
@given(st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_an_update_that_would_close_a_cycle_is_refused_and_changes_nothing(length: int) -> None:
    registry = Registry()
    names = [f"link {number}" for number in range(length)]
    registry.load([{"name": name, **({"extends": names[i - 1]} if i else {})} for i, name in enumerate(names)])
    before, version = registry.export(), registry.version
    with pytest.raises(CircularInheritanceError):
        registry.update(names[0], {"extends": names[-1], "priority": 9})
    assert (registry.export(), registry.version) == (before, version)


@seed(4)
@given(registries())
@settings(max_examples=40, deadline=None)
def test_deleting_a_base_by_force_changes_no_other_effective_rule(registry: Registry) -> None:
    for name in [rule["name"] for rule in registry.export()][1:]:
        before = {rule["name"]: resolved_to_dict(registry.resolve(rule["name"])) for rule in registry.export()}
        assert registry.delete(name, force=True)
        del before[name]
        assert {rule["name"]: resolved_to_dict(registry.resolve(rule["name"])) for rule in registry.export()} == before


@seed(4)
@given(registries())
@settings(max_examples=40, deadline=None)
def test_registering_a_resolved_rule_has_the_same_effect(registry: Registry) -> None:
    for rule in registry.export():
        alone = resolved_to_dict(registry.resolve(rule["name"]))
        copy = Registry()
        copy.load([alone])
        assert copy.get(rule["name"]) == alone
        assert resolved_to_dict(copy.resolve(rule["name"])) == alone


@seed(4)
@given(BODIES, BODIES, BODIES)
@settings(max_examples=100, deadline=None)
def test_overlaying_is_associative_and_has_a_neutral_element(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    assert merged(one, {}) == merged({}, one) == merged(one, one) == one
    assert merged(merged(one, two), three) == merged(one, merged(two, three))


@seed(4)
@given(BODIES, BODIES)
@settings(max_examples=100, deadline=None)
def test_an_overlay_wins_and_the_rest_stays(base: dict[str, Any], over: dict[str, Any]) -> None:
    result, values_of_base, values_over = (dict(leaves(values)) for values in (merged(base, over), base, over))
    assert result == values_of_base | values_over


def leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """All values of nested objects with their paths."""
    return [
        leaf
        for key, value in values.items()
        for leaf in (leaves(value, (*path, key)) if isinstance(value, dict) else [((*path, key), value)])
    ]
