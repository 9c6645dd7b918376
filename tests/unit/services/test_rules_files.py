"""Rules are loaded from JSON and YAML files. An error in a file is reported with the rule and the field."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.rules import LoadedRules
from mnemon_server.services.rules.files import FILE_BYTES_MAX, apply_rules_file
from mnemon_server.services.rules.store import RuleStore

from tests.support.vaults import open_vault

YAML = """\
# How the household settles what it disagrees on.
- name: strict
  priority: 5
  arbitration: &calm
    merge_threshold: 0.1
    default_strategy: keep-existing
- name: home
  extends: strict
  conditions:
    users: [ada, "bob"]
  arbitration:
    <<: *calm
    allow_merge: no
"""
RULES = [
    {
        "name": "strict",
        "priority": 5,
        "arbitration": {"merge_threshold": 0.1, "default_strategy": "keep-existing"},
    },
    {
        "name": "home",
        "extends": "strict",
        "conditions": {"users": ["ada", "bob"]},
        "arbitration": {"merge_threshold": 0.1, "default_strategy": "keep-existing", "allow_merge": False},
    },
]


@pytest_asyncio.fixture
async def rules(tmp_path: Path) -> AsyncIterator[RuleStore]:
    """The rules of an empty vault."""
    vault = open_vault(tmp_path / "vault")
    store = RuleStore(vault)
    yield store
    await store.aclose()
    vault.close()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rules.yaml", YAML),
        ("rules.yml", "\ufeff" + json.dumps({"rules": RULES})),
        ("rules.json", json.dumps(RULES)),
        ("RULES.JSON", "\ufeff" + json.dumps({"rules": RULES}, indent=2)),
    ],
)
async def test_rules_are_read_from_json_and_yaml(rules: RuleStore, tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    assert await apply_rules_file(rules, file) == LoadedRules(2, 0, 0, 2)
    assert (await rules.export())[0] == ({"name": "default"}, *RULES)


async def test_only_differing_rules_are_changed_and_others_stay(rules: RuleStore, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(RULES))
    await rules.load([{"name": "mine"}, RULES[0], {"name": "home", "priority": 9}])
    assert await apply_rules_file(rules, file) == LoadedRules(0, 1, 0, 3)
    assert await apply_rules_file(rules, file) == LoadedRules(0, 0, 0, 3)
    assert [rule["name"] for rule in (await rules.export())[0]] == ["default", "mine", "strict", "home"]


async def test_a_broken_file_is_refused_with_its_error_and_changes_nothing(rules: RuleStore, tmp_path: Path) -> None:
    cases = [
        ("r.yaml", "- name: a\n- name: b\n  merge: {keep_history: 5}\n", r"rule 2 \('b'\): merge.keep_history .* true"),
        ("r.yaml", "- priority: 1\n", r"rule 1: name must be 1 to 128 bytes"),
        ("r.json", '[{"name": "a"}, 7]', r"rule 2 must be an object"),
        ("r.json", '[{"name": "a"}, {"name": "a"}]', r"rule 2 \('a'\): name must differ"),
        ("r.yaml", "- {name: a, extends: b}\n", r"'a' extends 'b', which does not exist"),
        ("r.yaml", "- {name: a, extends: b}\n- {name: b, extends: a}\n", r"in a circle: "),
        ("r.yaml", "- name: a\n  priority: 1\n  priority: 2\n", r"'priority' appears twice"),
        ("r.json", '{"rules": [{"name": "a", "name": "b"}]}', r"'name' appears twice"),
        ("r.yaml", "- &a {name: a, merge: *a}\n", r"rule 1 \('a'\): merge.name is not a key here"),
        ("r.yaml", "- name: [\n", r"line 2: "),
        ("r.json", '[{"name": "a"},\n]', r"line 2: "),
        ("r.json", '[{"name": "a", "merge": {"importance_boost": NaN}}]', r"merge.importance_boost must be a number"),
        ("r.yaml", "- name: !!python/object/apply:os.getcwd []\n", r"line 1: could not determine a constructor"),
        ("r.yaml", "- name: 2024-99-99\n", r"month must be in 1..12"),
        ("r.yaml", "", r"must contain a list of rules"),
        ("r.json", '{"rules": [], "version": 1}', r"must contain a list of rules"),
        ("r.json", json.dumps([{"name": str(n)} for n in range(1_001)]), r"at most 1,000 rules"),
        ("r.json", json.dumps([{"name": str(n)} for n in range(1_000)]), r"at most 1,000 merge rules"),
        ("r.json", "[" * 100_000, r"nested too deeply"),
        ("r.yaml", "[" * 1_000, r"nested too deeply"),
        ("r.json", " " * (FILE_BYTES_MAX + 1), r"at most 1,048,576 bytes"),
    ]
    for name, content, problem in cases:
        file = tmp_path / name
        file.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=rf"rules file r\.\w+: .*{problem}") as caught:
            await apply_rules_file(rules, file)
        assert str(tmp_path) not in str(caught.value)
        assert await rules.export() == (({"name": "default"},), 1)


@pytest.mark.parametrize("name", ["r.json", "r.yaml"])
async def test_a_file_in_another_encoding_is_refused(rules: RuleStore, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes('[{"name": "Küche"}]'.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=f"rules file {name}: "):
        await apply_rules_file(rules, file)


async def test_a_missing_file_is_refused(rules: RuleStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"rules file r\.json: it cannot be read: No such file"):
        await apply_rules_file(rules, tmp_path / "r.json")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await apply_rules_file(rules, tmp_path)
