"""The scenarios of configurable merge rules, each over a real channel against a real server."""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from mnemon.v1 import changes_pb2, common_pb2, decisions_pb2, rules_pb2_grpc, semantic_pb2
from mnemon.v1 import rules_pb2 as pb

from tests.support.server import Connection, detail, failure_of, reason, run_command, violations, whole_server

DEFAULT = pb.MergeRuleConfig(name="default")
STRICT = pb.MergeRuleConfig(
    name="strict",
    description="Nothing is merged that differs much.",
    priority=1,
    detection={"time_window": Duration(seconds=90), "signals": [decisions_pb2.SIGNAL_TYPE_SEMANTIC]},
    arbitration={"merge_threshold": 0.1, "weights": {"recency": 0.5}},
    merge={"content_strategy": decisions_pb2.CONTENT_STRATEGY_CONCATENATE, "keep_history": False},
)
HOME = pb.MergeRuleConfig(
    name="home",
    extends="strict",
    priority=2,
    conditions={"users": ["ada", "bob"]},
    arbitration={"allow_merge": False, "weights": {"source": 0.0}},
)
PHONE = pb.MergeRuleConfig(name="phone", extends="home", priority=3, conditions={"users": ["ada"]})
TOOLS = pb.MergeRuleConfig(name="tools", conditions={"sources": ["skill"]})
RULE_EVENTS = [
    changes_pb2.CHANGE_TYPE_RULE_REGISTERED,
    changes_pb2.CHANGE_TYPE_RULE_UPDATED,
    changes_pb2.CHANGE_TYPE_RULE_DELETED,
]


class Rules:
    """The rules of a server, as a client sees them."""

    def __init__(self, connection: Connection) -> None:
        self.stub: Any = rules_pb2_grpc.RulesServiceStub(connection.channel)

    async def register(self, *rules: pb.MergeRuleConfig) -> int:
        """Registers these, one after the other; returns the version."""
        version = 0
        for rule in rules:
            answer = await self.stub.RegisterRule(pb.RegisterRuleRequest(rule=rule))
            assert (written(answer.rule), answer.rule.revision) == (rule, 1)
            version = answer.registry_version
        return version

    async def get(self, name: str) -> pb.MergeRuleConfig:
        """The rule as it was written."""
        return written((await self.stub.GetRule(pb.GetRuleRequest(name=name))).rule)

    async def revision(self, name: str) -> int:
        """The rule's revision, which lists say, too."""
        revision: int = (await self.stub.GetRule(pb.GetRuleRequest(name=name))).rule.revision
        listed = await self.stub.ListRules(pb.ListRulesRequest())
        assert {rule.name: rule.revision for rule in listed.rules}[name] == revision
        return revision

    async def update(self, rule: pb.MergeRuleConfig, **terms: Any) -> pb.UpdateRuleResponse:
        """Changes a rule."""
        return await self.stub.UpdateRule(pb.UpdateRuleRequest(rule=rule, **terms))

    async def delete(self, name: str, **terms: Any) -> pb.DeleteRuleResponse:
        """Deletes a rule."""
        return await self.stub.DeleteRule(pb.DeleteRuleRequest(name=name, **terms))

    async def resolve(self, name: str) -> pb.ResolveRuleResponse:
        """The rule with all that it inherits."""
        return await self.stub.ResolveRule(pb.ResolveRuleRequest(name=name))

    async def export(self) -> pb.ExportRulesResponse:
        """All rules."""
        return await self.stub.ExportRules(pb.ExportRulesRequest())

    async def load(self, rules: Iterable[pb.MergeRuleConfig], **terms: Any) -> pb.LoadRulesResponse:
        """Loads rules."""
        return await self.stub.LoadRules(pb.LoadRulesRequest(rules=rules, **terms))

    async def matching(self, user: str, **fields: Any) -> str:
        """The name of the rule for a statement of this user."""
        candidate = semantic_pb2.SemanticMemory(content="anything", scope={"user": user}, **fields)
        answer = await self.stub.FindMatchingRule(pb.FindMatchingRuleRequest(candidate=candidate))
        return str(answer.rule.name)

    async def state(self) -> tuple[list[pb.MergeRuleConfig], int]:
        """All rules, and the version."""
        exported = await self.export()
        return list(exported.rules), exported.registry_version


def written(rule: pb.MergeRuleConfig) -> pb.MergeRuleConfig:
    """A rule without what the server set."""
    copy = pb.MergeRuleConfig()
    copy.CopyFrom(rule)
    copy.ClearField("revision")
    return copy


@pytest.fixture
def rules(connection: Connection) -> Rules:
    """Its rules."""
    return Rules(connection)


async def refusal(call: Any) -> tuple[str, str]:
    """Status and reason of a call that fails."""
    error = await failure_of(call)
    return error.code().name, reason(error)


# Scenario: Rule registration and lookup


async def test_rule_registration_and_lookup(rules: Rules) -> None:
    assert await rules.state() == ([DEFAULT], 1)
    assert await rules.register(STRICT, HOME) == 3
    assert await rules.get("home") == HOME
    assert await refusal(rules.get("nowhere")) == ("NOT_FOUND", "RULE_NOT_FOUND")
    assert await refusal(rules.register(STRICT)) == ("ALREADY_EXISTS", "RULE_EXISTS")
    assert await rules.state() == ([DEFAULT, STRICT, HOME], 3)


async def test_registering_twice_with_one_request_id_registers_once(rules: Rules) -> None:
    request = pb.RegisterRuleRequest(rule=STRICT, request_id="once")
    first = await rules.stub.RegisterRule(request)
    await rules.register(HOME)
    assert await rules.stub.RegisterRule(request) == first
    assert (await rules.export()).registry_version == 3


@pytest.mark.parametrize("window", [Duration(), Duration(nanos=-1), Duration(nanos=1), Duration(seconds=10**12)])
async def test_an_invalid_time_window_has_the_name_of_the_message_field(rules: Rules, window: Duration) -> None:
    error = await failure_of(rules.register(pb.MergeRuleConfig(name="mine", detection={"time_window": window})))
    [violation] = detail(error, error_details_pb2.BadRequest).field_violations
    assert (error.code().name, violation.field) == ("INVALID_ARGUMENT", "rule.detection.time_window")
    assert await rules.state() == ([DEFAULT], 1)


# Scenario: Rule inheritance


async def test_rule_inheritance(rules: Rules) -> None:
    await rules.register(STRICT, HOME, PHONE)
    answer = await rules.resolve("phone")
    rule = answer.rule
    assert list(answer.ancestors) == ["home", "strict"]
    # Its own values override inherited ones, over two levels.
    assert (rule.priority, list(rule.conditions.users)) == (3, ["ada"])
    assert (rule.description, rule.enabled) == (STRICT.description, True)
    # Objects are merged key by key, lists are replaced, and unset keys have their defaults.
    assert (rule.arbitration.merge_threshold, rule.arbitration.allow_merge) == (0.1, False)
    weights = decisions_pb2.FactorWeights(importance=0.4, recency=0.5, source=0.0, semantic=0.1)
    assert rule.arbitration.weights == weights
    assert rule.detection.time_window.ToTimedelta() == timedelta(seconds=90)
    assert list(rule.detection.signals) == [decisions_pb2.SIGNAL_TYPE_SEMANTIC]
    assert (rule.detection.semantic_threshold, rule.merge.deduplication_threshold) == (0.8, 0.8)
    assert rule.merge.content_strategy == decisions_pb2.CONTENT_STRATEGY_CONCATENATE
    assert not rule.HasField("extends")
    origins = {origin.field: origin.rule for origin in answer.origins}
    assert {field: origin for field, origin in origins.items() if origin} == {
        "description": "strict",
        "priority": "phone",
        "conditions.users": "phone",
        "detection.time_window": "strict",
        "detection.signals": "strict",
        "arbitration.merge_threshold": "strict",
        "arbitration.weights.recency": "strict",
        "arbitration.weights.source": "home",
        "arbitration.allow_merge": "home",
        "merge.content_strategy": "strict",
        "merge.keep_history": "strict",
    }


@pytest.mark.parametrize("length", [1, 2, 3, 40])
async def test_a_cycle_of_any_length_is_refused_and_changes_nothing(rules: Rules, length: int) -> None:
    await rules.register(STRICT)
    chain = [pb.MergeRuleConfig(name=f"link {i}", extends=f"link {(i + 1) % length}") for i in range(length)]
    before = await rules.state()
    circular = ("FAILED_PRECONDITION", "CIRCULAR_INHERITANCE")
    assert await refusal(rules.load([*chain, HOME])) == circular
    assert await refusal(rules.load(chain, lenient=True)) == circular
    assert await rules.state() == before
    closing = chain[-1]
    chain[-1] = pb.MergeRuleConfig(name=closing.name)
    await rules.load(chain)
    before = await rules.state()
    assert await refusal(rules.update(closing)) == circular
    assert await rules.state() == before


async def test_an_unknown_base_is_refused_and_changes_nothing(rules: Rules) -> None:
    unknown = ("FAILED_PRECONDITION", "UNKNOWN_BASE_RULE")
    assert await refusal(rules.register(HOME)) == unknown
    assert await refusal(rules.update(pb.MergeRuleConfig(name="default", extends="nowhere"))) == unknown
    assert await refusal(rules.load([STRICT, pb.MergeRuleConfig(name="orphan", extends="nowhere")])) == unknown
    assert await rules.state() == ([DEFAULT], 1)


async def test_a_base_in_use_is_deleted_only_by_force(rules: Rules) -> None:
    await rules.register(STRICT, HOME, PHONE)
    before = (await rules.resolve("phone")).rule
    assert await refusal(rules.delete("strict")) == ("FAILED_PRECONDITION", "RULE_IN_USE")
    deleted = await rules.delete("strict", force=True)
    assert (deleted.receipt.outcome, deleted.receipt.id) == (common_pb2.WRITE_OUTCOME_DELETED, "strict")
    assert deleted.registry_version == 5
    assert (await rules.resolve("phone")).rule == before
    assert list((await rules.resolve("phone")).ancestors) == ["home"]
    assert not (await rules.get("home")).HasField("extends")


async def test_the_default_rule_cannot_be_deleted(rules: Rules) -> None:
    assert await refusal(rules.delete("default", force=True)) == ("FAILED_PRECONDITION", "INVALID_OPERATION")


async def test_deleting_a_missing_rule_fails_unless_allowed(rules: Rules) -> None:
    unknown = ("NOT_FOUND", "RULE_NOT_FOUND")
    assert await refusal(rules.delete("nowhere")) == unknown
    assert await refusal(rules.delete("nowhere", expected_revision=1)) == unknown
    missing = await rules.delete("nowhere", allow_missing=True, request_id="once")
    assert (missing.receipt.outcome, missing.receipt.id) == (common_pb2.WRITE_OUTCOME_MISSING, "nowhere")
    assert missing.receipt.HasField("commit_time")
    assert missing.registry_version == 1
    await rules.register(pb.MergeRuleConfig(name="nowhere"))
    again = await rules.delete("nowhere", allow_missing=True, request_id="once")
    assert (again.receipt.outcome, again.receipt.replayed) == (common_pb2.WRITE_OUTCOME_MISSING, True)


# Scenario: Runtime rule updates


async def test_runtime_rule_updates(rules: Rules) -> None:
    await rules.register(STRICT, HOME, PHONE)
    changes = pb.MergeRuleConfig(name="home", conditions={"users": ["eve"]}, arbitration={"weights": {"semantic": 0.3}})
    answer = await rules.update(changes)
    expected = pb.MergeRuleConfig()
    expected.CopyFrom(HOME)
    expected.conditions.users[:] = ["eve"]
    expected.arbitration.weights.semantic = 0.3
    assert (written(answer.rule), answer.rule.revision, answer.registry_version) == (expected, 2, 5)
    assert await rules.get("home") == expected
    # One that changes nothing counts, too.
    assert (await rules.update(changes)).registry_version == 6
    # The change affects the rules that inherit from it.
    weights = (await rules.resolve("phone")).rule.arbitration.weights
    assert weights == decisions_pb2.FactorWeights(importance=0.4, recency=0.5, source=0.0, semantic=0.3)


async def test_with_a_mask_only_its_fields_change_and_unset_ones_are_inherited_again(rules: Rules) -> None:
    await rules.register(STRICT, HOME)
    change = pb.MergeRuleConfig(name="home", description="not named", priority=7)
    paths = ["arbitration.weights.source", "conditions", "priority"]
    answer = await rules.update(change, update_mask={"paths": paths})
    expected = pb.MergeRuleConfig(name="home", extends="strict", priority=7, arbitration={"allow_merge": False})
    assert written(answer.rule) == expected
    await rules.update(pb.MergeRuleConfig(name="strict"), update_mask={"paths": ["detection.time_window"]})
    assert (await rules.resolve("home")).rule.detection.time_window.ToTimedelta() == timedelta(minutes=5)
    # A map is one field: its keys are any text, and no path can name that.
    change = pb.MergeRuleConfig(name="home", arbitration={"source_priority": {"user": 1.0}})
    await rules.update(change)
    change.arbitration.source_priority.clear()
    change.arbitration.source_priority["form.a"] = 2.0
    answer = await rules.update(change, update_mask={"paths": ["arbitration.source_priority"]})
    assert answer.rule.arbitration.source_priority == {"form.a": 2.0}


@pytest.mark.parametrize("path", ["smell", "name", "arbitration.source_priority.user"])
async def test_a_mask_that_names_no_field_is_refused(rules: Rules, path: str) -> None:
    await rules.register(STRICT)
    error = await failure_of(rules.update(STRICT, update_mask={"paths": ["extends", path]}))
    [violation] = detail(error, error_details_pb2.BadRequest).field_violations
    assert (error.code().name, violation.field) == ("INVALID_ARGUMENT", "update_mask")
    assert repr(path) in violation.description
    assert await rules.get("strict") == STRICT


async def test_a_change_may_expect_the_revision_that_was_read(rules: Rules) -> None:
    await rules.register(STRICT)
    revision = await rules.revision("strict")
    await rules.register(HOME)
    change = pb.MergeRuleConfig(name="strict", priority=8)
    assert (await rules.update(change, expected_revision=revision)).rule.revision == revision + 1
    mismatch = ("ABORTED", "REVISION_MISMATCH")
    change.priority = 9
    assert await refusal(rules.update(change, expected_revision=revision)) == mismatch
    assert await refusal(rules.delete("strict", force=True, expected_revision=revision)) == mismatch
    assert (await rules.get("strict")).priority == 8
    unknown = pb.MergeRuleConfig(name="nowhere")
    assert await refusal(rules.update(unknown, expected_revision=1)) == ("NOT_FOUND", "RULE_NOT_FOUND")
    deleted = await rules.delete("strict", force=True, expected_revision=revision + 1)
    assert deleted.receipt.revision == revision + 1


# Scenario: Conditional rule matching


async def test_conditional_rule_matching(rules: Rules) -> None:
    def rule(name: str, priority: int = 0, **fields: Any) -> pb.MergeRuleConfig:
        return pb.MergeRuleConfig(name=name, priority=priority, **fields)

    await rules.register(
        rule("of ada", 1, conditions={"users": ["ada"]}),
        rule("of the mentor", 5, conditions={"users": ["ada"], "personas": ["mentor"]}),
        rule("of tools", 7, conditions={"sources": ["skill", "system"]}),
        rule("of weight", 9, conditions={"importance_min": 0.9, "importance_max": 0.95}),
        rule("also of ada", 1, conditions={"users": ["ada"]}),
        rule("never", 100, enabled=False),
    )
    await rules.update(rule("default", 1_000))
    assert await rules.matching("ada") == "of ada"
    assert await rules.matching("ada", source="skill") == "of tools"
    assert await rules.matching("bob", importance=0.9) == "of weight"
    assert await rules.matching("bob", importance=0.95) == "of weight"
    assert await rules.matching("bob", importance=0.951) == "default"
    assert await rules.matching("bob") == "default"
    candidate = semantic_pb2.SemanticMemory(content="c", scope={"user": "ada", "persona": "mentor"}, importance=0.5)
    # Only the candidate's values matter, not the values of the existing statement.
    existing = semantic_pb2.SemanticMemory(content="e", scope=candidate.scope, source="skill", importance=0.9)
    for request in (
        pb.FindMatchingRuleRequest(candidate=candidate),
        pb.FindMatchingRuleRequest(candidate=candidate, existing=existing),
    ):
        answer = await rules.stub.FindMatchingRule(request)
        assert answer.rule.name == "of the mentor"
        assert answer.rule.detection.semantic_threshold == 0.8
    existing.scope.user = "bob"
    request = pb.FindMatchingRuleRequest(candidate=candidate, existing=existing)
    assert violations(await failure_of(rules.stub.FindMatchingRule(request))) == {"existing"}


async def test_rules_are_listed_in_order_of_registration_or_of_matching(rules: Rules) -> None:
    await rules.register(*(pb.MergeRuleConfig(name=f"r{number}", priority=number % 3) for number in range(6)))

    async def listed(order: int) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            request = pb.ListRulesRequest(order=order, page_size=2, page_token=token)  # type: ignore[arg-type]
            page = await rules.stub.ListRules(request)
            assert (len(page.rules) <= 2, page.registry_version) == (True, 7)
            found += [rule.name for rule in page.rules]
            if not (token := page.next_page_token):
                return found

    assert await listed(pb.RULE_ORDER_REGISTRATION) == ["default", "r0", "r1", "r2", "r3", "r4", "r5"]
    assert await listed(pb.RULE_ORDER_UNSPECIFIED) == await listed(pb.RULE_ORDER_REGISTRATION)
    assert await listed(pb.RULE_ORDER_MATCHING) == ["r2", "r5", "r1", "r4", "r0", "r3", "default"]


# Scenario: Rule changes


async def test_rule_changes(connection: Connection, rules: Rules) -> None:
    watch = connection.changes.WatchChanges(changes_pb2.WatchChangesRequest(filter={"types": RULE_EVENTS}))
    assert (await watch.read()).HasField("started")
    await rules.register(STRICT, HOME)
    await rules.update(pb.MergeRuleConfig(name="home", priority=9))
    await rules.delete("strict", force=True)
    updated = pb.MergeRuleConfig()
    updated.CopyFrom(HOME)
    updated.priority = 9
    frozen = await rules.get("home")
    expected = [
        (changes_pb2.CHANGE_TYPE_RULE_REGISTERED, "strict", STRICT),
        (changes_pb2.CHANGE_TYPE_RULE_REGISTERED, "home", HOME),
        (changes_pb2.CHANGE_TYPE_RULE_UPDATED, "home", updated),
        (changes_pb2.CHANGE_TYPE_RULE_DELETED, "strict", STRICT),
        (changes_pb2.CHANGE_TYPE_RULE_UPDATED, "home", frozen),
    ]
    changes: list[Any] = []
    while len(changes) < len(expected):
        changes += (await watch.read()).batch.changes
    watch.cancel()
    assert [(change.type, change.record_id, change.rule) for change in changes] == expected
    assert changes[3].commit_id == changes[4].commit_id != changes[2].commit_id
    listed = await connection.changes.ListChanges(changes_pb2.ListChangesRequest(filter={"types": RULE_EVENTS}))
    assert list(listed.changes) == changes


# Scenario: Rule persistence


async def test_rule_persistence(rules: Rules, tmp_path: Path) -> None:
    await rules.register(STRICT, HOME, PHONE)
    await rules.update(pb.MergeRuleConfig(name="default", priority=4))
    exported = await rules.export()
    assert [rule.name for rule in exported.rules] == ["default", "strict", "home", "phone"]
    assert [rule.extends for rule in exported.rules] == ["", "", "strict", "home"]
    async with whole_server(tmp_path / "other") as other:
        others = Rules(other)
        loaded = await others.load(exported.rules)
        assert (loaded.registered_count, loaded.updated_count, loaded.registry_version) == (3, 1, 2)
        assert (await others.export()).rules == exported.rules
        for rule in exported.rules:
            assert await others.resolve(rule.name) == await rules.resolve(rule.name)


async def test_rules_load_in_any_order_all_or_none(rules: Rules) -> None:
    loaded = await rules.load([PHONE, HOME, STRICT])
    assert (loaded.registered_count, loaded.registry_version) == (3, 2)
    assert list((await rules.resolve("phone")).ancestors) == ["home", "strict"]
    before = await rules.state()
    twice = [pb.MergeRuleConfig(name="a"), pb.MergeRuleConfig(name="a")]
    assert await refusal(rules.load(twice)) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert await rules.state() == before


async def test_loading_in_place_of_all_and_leniently(rules: Rules) -> None:
    await rules.register(STRICT, HOME)
    loaded = await rules.load([HOME], replace_all=True, lenient=True)
    assert (loaded.registered_count, loaded.updated_count, loaded.deleted_count) == (0, 1, 1)
    assert [rule.name for rule in (await rules.export()).rules] == ["default", "home"]
    assert (await rules.get("home")).extends == "default"


async def test_a_reset_leaves_only_the_original_default(rules: Rules) -> None:
    await rules.register(STRICT, HOME)
    answer = await rules.stub.ResetRules(pb.ResetRulesRequest())
    assert await rules.state() == ([DEFAULT], answer.registry_version)
    assert answer.registry_version == 4


async def test_rules_survive_a_restart(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as first:
        rules = Rules(first)
        await rules.register(STRICT, TOOLS, HOME)
        await rules.update(pb.MergeRuleConfig(name="strict", priority=2))
        before, found = await rules.state(), await rules.matching("ada")
    async with whole_server(tmp_path) as second:
        rules = Rules(second)
        assert (await rules.state(), await rules.matching("ada")) == (before, found)
        assert await rules.register(PHONE) == before[1] + 1


# A rules file


async def test_a_rules_file_is_loaded_when_the_server_starts(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- {name: house, extends: strict}\n- {name: strict, arbitration: {merge_threshold: 0.1}}\n")
    async with whole_server(tmp_path / "data", rules_file=file) as server:
        rules = Rules(server)
        assert [rule.name for rule in (await rules.export()).rules] == ["default", "house", "strict"]
        assert (await rules.resolve("house")).rule.arbitration.merge_threshold == 0.1
        before = await rules.state()
        await rules.register(TOOLS)
    async with whole_server(tmp_path / "data", rules_file=file) as server:
        after = await Rules(server).state()
    assert after == ([*before[0], TOOLS], before[1] + 1)


def test_a_broken_rules_file_refuses_to_start_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps([{"name": "house"}, {"name": "strict", "merge": {"importance_boost": 7}}]))
    flags = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--embedding-model", "hashing"]
    ended = run_command("serve", *flags, "--rules-file", str(file), "--knowledge-store-backend", "local")
    assert ended.returncode != 0
    assert "rules.json: rule 2 ('strict'): merge.importance_boost must be a number from 0 to 1" in ended.stderr
