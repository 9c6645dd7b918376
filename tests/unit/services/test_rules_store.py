"""Merge rules are stored in the vault, each change together with its log entry, and once per request."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mnemon_server.domain.changes import Change, ChangeFilter
from mnemon_server.domain.errors import (
    CircularInheritanceError,
    InvalidArgumentError,
    InvalidOperationError,
    RequestIdReusedError,
    RevisionMismatchError,
    RuleExistsError,
    RuleInUseError,
    RuleNotFoundError,
    UnknownBaseRuleError,
)
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.domain.rules import DeletedRule, LoadedRules, RuleOrder
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import completion
from mnemon_server.services.rules.store import RuleStore

from tests.support.vaults import open_vault, temporary_vault

BASE = {"name": "base", "priority": 2, "arbitration": {"merge_threshold": 0.1}}
CHILD = {"name": "child", "extends": "base", "conditions": {"users": ["ada"]}}
ADA = SemanticMemory("", "", scope=Scope(user="ada"))


@pytest.fixture
def vault() -> Iterator[Vault]:
    """A vault without rules."""
    with temporary_vault() as opened:
        yield opened


@pytest_asyncio.fixture
async def rules(vault: Vault) -> AsyncIterator[RuleStore]:
    """The rules of the vault."""
    store = RuleStore(vault)
    yield store
    await store.aclose()


def changes_of(vault: Vault) -> list[Change]:
    """All changes."""
    return list(vault.changes.read(0, limit=1_000, where=ChangeFilter()).changes)


def told(vault: Vault) -> list[tuple[str, str, Any]]:
    """The type, record and details of each change."""
    return [(change.type.value, change.record_id, json.loads(change.details)) for change in changes_of(vault)]


async def names(rules: RuleStore) -> list[str]:
    """The names of all rules, in order."""
    return [rule["name"] for rule in (await rules.export())[0]]


async def test_every_change_is_in_the_log_once_with_the_configuration(rules: RuleStore, vault: Vault) -> None:
    await rules.register(BASE)
    await rules.update({"name": "base", "arbitration": {"allow_merge": False}})
    await rules.update({"name": "default", "priority": 1})
    await rules.delete("base")
    changed = {**BASE, "arbitration": {"merge_threshold": 0.1, "allow_merge": False}}
    assert told(vault) == [
        ("rule:registered", "base", BASE),
        ("rule:updated", "base", changed),
        ("rule:updated", "default", {"name": "default", "priority": 1}),
        ("rule:deleted", "base", changed),
    ]


async def test_an_update_counts_and_is_told_even_if_it_changes_nothing(rules: RuleStore, vault: Vault) -> None:
    revision = (await rules.register(BASE)).revision
    unchanged = await rules.update(BASE, request_id="once")
    assert (unchanged.rule, unchanged.revision, unchanged.version) == (BASE, revision, 3)
    assert await rules.update(BASE, request_id="once") == unchanged
    assert (await rules.update({"name": "default"})).version == 4
    assert told(vault)[1:] == [("rule:updated", "base", BASE), ("rule:updated", "default", {"name": "default"})]
    assert [(change.revision, change.changed) for change in changes_of(vault)[1:]] == [(revision, ()), (0, ())]
    elsewhere = RuleStore(vault)
    assert (await elsewhere.export())[1] == 4
    await elsewhere.aclose()


async def test_an_update_names_the_fields_that_it_changes(rules: RuleStore, vault: Vault) -> None:
    await rules.register(BASE)
    changes = {
        "name": "base",
        "priority": 2,
        "conditions": {"users": ["ada"]},
        "detection": {"time_window_s": 60},
        "arbitration": {"weights": {"source": 1}, "source_priority": {"form.a": 2}},
    }
    await rules.update(changes)
    await rules.update({"name": "base"}, mask=["conditions", "arbitration"])
    await rules.load([{"name": "base", "description": "again"}])
    assert [change.changed for change in changes_of(vault)] == [
        (),
        ("conditions.users", "detection.time_window_s", "arbitration.weights.source", "arbitration.source_priority"),
        (
            "conditions.users",
            "arbitration.weights.source",
            "arbitration.merge_threshold",
            "arbitration.source_priority",
        ),
        ("description", "priority", "detection.time_window_s"),
    ]


async def test_a_call_that_changes_nothing_is_not_in_the_log(rules: RuleStore, vault: Vault) -> None:
    await rules.register(BASE)
    assert await rules.load([BASE]) == LoadedRules(0, 0, 0, 2)
    missing = await rules.delete("nowhere", allow_missing=True)
    assert (missing.receipt.outcome, missing.version) == (WriteOutcome.MISSING, 2)
    assert len(changes_of(vault)) == 1


async def test_a_refused_change_affects_neither_rules_nor_log(rules: RuleStore, vault: Vault) -> None:
    cases = [
        (lambda rules: rules.register(BASE), RuleExistsError),
        (lambda rules: rules.register({"name": "x", "extends": "nowhere"}), UnknownBaseRuleError),
        (lambda rules: rules.register({"name": "x", "priority": "high"}), InvalidArgumentError),
        (lambda rules: rules.update({"name": "base", "extends": "child"}), CircularInheritanceError),
        (lambda rules: rules.update({"name": "nowhere"}), RuleNotFoundError),
        (lambda rules: rules.update({"priority": 1}), InvalidArgumentError),
        (lambda rules: rules.update({"name": "base"}, mask=["smell"]), InvalidArgumentError),
        (lambda rules: rules.update({"name": "base", "priority": 9}, expected_revision=1), RevisionMismatchError),
        (lambda rules: rules.update({"name": "nowhere"}, expected_revision=1), RuleNotFoundError),
        (lambda rules: rules.delete("base", force=True, expected_revision=1), RevisionMismatchError),
        (lambda rules: rules.delete("nowhere", expected_revision=1), RuleNotFoundError),
        (lambda rules: rules.delete("nowhere"), RuleNotFoundError),
        (lambda rules: rules.delete("base"), RuleInUseError),
        (lambda rules: rules.delete("default", force=True), InvalidOperationError),
        (lambda rules: rules.load([{"name": "x"}, {"name": "y", "extends": "nowhere"}]), UnknownBaseRuleError),
        (lambda rules: rules.load([{"name": "x"}, {"name": "x"}]), InvalidArgumentError),
        (lambda rules: rules.register({"name": "x"}, request_id="i" * 129), InvalidArgumentError),
    ]
    await rules.load([BASE, CHILD])
    await rules.update({"name": "base", "description": "at version 3"})
    before, happened = await rules.export(), changes_of(vault)
    for change, error in cases:
        with pytest.raises(error):
            await change(rules)
        assert (await rules.export(), changes_of(vault)) == (before, happened)


async def test_the_revision_of_a_rule_grows_only_with_its_own_changes(rules: RuleStore, vault: Vault) -> None:
    revision = (await rules.register(BASE)).revision
    await rules.register(CHILD)
    assert (await rules.update({"name": "base", "priority": 9}, expected_revision=revision)).revision == revision + 1
    with pytest.raises(RevisionMismatchError, match=f"revision {revision + 1}, not {revision}"):
        await rules.update({"name": "base", "priority": 8}, expected_revision=revision)
    assert (await rules.update({"name": "base", "priority": 9})).revision == revision + 1
    await rules.update({"name": "default", "priority": 1}, expected_revision=0)
    await rules.load([{"name": "default", "priority": 1}, CHILD, {**BASE, "priority": 9}], replace_all=True)
    await rules.reset(request_id="once")
    await rules.register(BASE)

    async def revisions(store: RuleStore) -> dict[str, int]:
        return {each.rule["name"]: each.revision for each in (await store.list(limit=10)).rules}

    # The rules in memory match those in the vault.
    elsewhere = RuleStore(vault)
    assert await revisions(rules) == await revisions(elsewhere) == {"default": 2, "base": 1}
    deleted = await rules.delete("base", expected_revision=1)
    assert (deleted.receipt.outcome, deleted.receipt.revision) == (WriteOutcome.DELETED, 1)
    await elsewhere.aclose()


async def test_deleting_a_base_by_force_is_one_commit_that_names_its_children(rules: RuleStore, vault: Vault) -> None:
    await rules.load([BASE, CHILD])
    assert (await rules.delete("base", force=True)).version == 3
    frozen = {"name": "child", "priority": 2, "conditions": CHILD["conditions"], "arbitration": BASE["arbitration"]}
    assert (await rules.get("child")).rule == frozen
    assert told(vault)[-2:] == [("rule:deleted", "base", BASE), ("rule:updated", "child", frozen)]
    assert len({change.commit for change in changes_of(vault)[-2:]}) == 1


async def test_loading_is_one_commit(rules: RuleStore, vault: Vault) -> None:
    await rules.register({"name": "old"})
    loaded = await rules.load([CHILD, BASE, {"name": "default", "priority": 3}], replace_all=True)
    assert loaded == LoadedRules(registered_count=2, updated_count=1, deleted_count=1, version=3)
    assert await names(rules) == ["default", "child", "base"]
    commits = {change.commit for change in changes_of(vault)[1:]}
    assert len(commits) == 1
    assert sorted(told(vault)[1:], key=lambda change: change[1]) == [
        ("rule:registered", "base", BASE),
        ("rule:registered", "child", CHILD),
        ("rule:updated", "default", {"name": "default", "priority": 3}),
        ("rule:deleted", "old", {"name": "old"}),
    ]


async def test_a_reset_leaves_only_the_original_default(rules: RuleStore, vault: Vault) -> None:
    await rules.load([BASE, {"name": "default", "priority": 3}])
    assert await rules.reset() == 3
    assert await rules.export() == (({"name": "default"},), 3)
    assert {change[:2] for change in told(vault)[-2:]} == {("rule:deleted", "base"), ("rule:updated", "default")}


async def test_a_repeated_request_is_executed_once_and_gets_its_first_answer(rules: RuleStore, vault: Vault) -> None:
    asked: dict[str, Callable[[str], Any]] = {
        "register": lambda key: rules.register(BASE, request_id=key),
        "update": lambda key: rules.update({"name": "base", "priority": 7}, request_id=key),
        "load": lambda key: rules.load([CHILD, {"name": "more"}], request_id=key),
        "delete": lambda key: rules.delete("more", request_id=key),
        "reset": lambda key: rules.reset(request_id=key),
    }
    first = {name: await ask(name) for name, ask in asked.items()}
    happened = changes_of(vault)
    again = {name: await ask(name) for name, ask in asked.items()}
    deleted: DeletedRule = first.pop("delete")
    assert again.pop("delete") == replace(deleted, receipt=replace(deleted.receipt, replayed=True))
    assert again == first
    assert changes_of(vault) == happened
    assert await names(rules) == ["default"]
    with pytest.raises(RequestIdReusedError):
        await rules.register(CHILD, request_id="register")


@pytest.mark.parametrize("name", ["user", "household", "persona"])
async def test_statements_of_two_scopes_have_no_rule_because_they_never_conflict(rules: RuleStore, name: str) -> None:
    other = replace(ADA, scope=replace(ADA.scope, **{name: "other"}))
    with pytest.raises(InvalidArgumentError, match=f"existing: must belong to the same {name} as candidate"):
        await rules.find_matching(ADA, other)
    assert (await rules.find_matching(ADA, ADA)).name == "default"


async def test_a_transaction_sees_the_rules_as_they_are_committed(rules: RuleStore, vault: Vault) -> None:
    await rules.register(BASE)
    elsewhere = RuleStore(vault)

    def program(tx: VaultTransaction) -> str:
        return elsewhere.rules_in(tx).find_matching(ADA).name

    for name in ("base", "urgent"):
        assert (await completion(vault.transact(program))).answer == name
        assert elsewhere.rules_in().find_matching(ADA).name == name
        await rules.load([{"name": "urgent", "priority": 9}])
    await elsewhere.aclose()


async def test_concurrent_changes_all_count(rules: RuleStore) -> None:
    registered = await asyncio.gather(*(rules.register({"name": f"rule {number}"}) for number in range(20)))
    assert sorted(receipt.version for receipt in registered) == [*range(2, 22)]
    assert sorted(await names(rules)) == sorted(["default", *(f"rule {number}" for number in range(20))])


async def listed(rules: RuleStore, order: RuleOrder, between: Callable[[], Any] | None = None) -> list[str]:
    """The names, listed on pages of two. Calls `between` after the first page."""
    found, position = [], 0
    while True:
        page = await rules.list(order, after=position, limit=2)
        found += [each.rule["name"] for each in page.rules]
        if page.next_position is None:
            return found
        position = page.next_position
        if between is not None:
            await between()
            between = None


@pytest.mark.parametrize(("order", "first"), [(RuleOrder.REGISTRATION, "a"), (RuleOrder.MATCHING, "c")])
async def test_pages_neither_repeat_nor_skip_when_a_rule_is_deleted(
    rules: RuleStore, order: RuleOrder, first: str
) -> None:
    for name, priority in {"a": 0, "b": -1, "c": 1, "d": 0}.items():
        await rules.register({"name": name, "priority": priority})
    whole = await listed(rules, order)
    assert first in whole[:2]
    assert await listed(rules, order, lambda: rules.delete(first)) == whole


async def test_rules_their_order_and_their_version_survive_reopening(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    rules = RuleStore(vault)
    await rules.load([CHILD, BASE, {"name": "last"}])
    await rules.load([{"name": "last"}, BASE, CHILD], replace_all=True)
    await rules.update({"name": "base", "priority": 4})
    exported = await rules.export()
    await rules.aclose()
    vault.close()

    vault = open_vault(tmp_path)
    rules = RuleStore(vault)
    assert await rules.export() == exported
    assert exported[1] == 4
    assert [rule["name"] for rule in exported[0]] == ["default", "last", "base", "child"]
    assert (await rules.register({"name": "new"})).version == 5
    assert (await names(rules))[-1] == "new"
    await rules.aclose()
    vault.close()
