"""Merge rules in files: JSON if the name ends in .json, otherwise YAML."""

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mnemon_server.domain.errors import (
    ConfigurationError,
    FieldViolation,
    InvalidArgumentError,
    InvalidOperationError,
    MergeRuleError,
)
from mnemon_server.domain.rules import RULES_MAX, LoadedRules
from mnemon_server.services.rules.store import RuleStore

FILE_BYTES_MAX = 1 << 20
VIOLATIONS_SHOWN = 10

log = logging.getLogger(__name__)

_RULE_FIELD = re.compile(r"rules\[(\d+)\](?:\.(.*))?", re.DOTALL)


async def apply_rules_file(store: RuleStore, path: Path) -> LoadedRules:
    """Registers the rules of a file, and replaces rules with the same names; other rules stay as they are.

    Logs the warnings of the rules that it registers or replaces.

    Raises:
        ConfigurationError: the file cannot be read, or a rule is invalid; it names the rule and the field. Nothing was
            changed.
    """
    rules = await asyncio.to_thread(read_rules_file, path)
    try:
        loaded = await store.load(rules)
    except InvalidArgumentError as error:
        said = [_described(violation, rules) for violation in error.violations[:VIOLATIONS_SHOWN]]
        raise _refusal(path, "; ".join(said)) from error
    except (MergeRuleError, InvalidOperationError) as error:
        raise _refusal(path, str(error)) from error
    for warning in loaded.warnings:
        log.warning("%s: %s", path, warning)
    return loaded


def read_rules_file(path: Path) -> list[Any]:
    """The rules of a file, unchecked: a list of them, or an object with such a list under "rules". Blocks.

    Raises:
        ConfigurationError: it cannot be read, is too large, or does not hold such a list.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _refusal(path, f"it cannot be read: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise _refusal(path, f"it must be at most {FILE_BYTES_MAX:,} bytes")
    return _listed(path, _parsed(path, content))


def _parsed(path: Path, content: bytes) -> Any:
    try:
        return _from_json(content) if path.suffix.lower() == ".json" else _from_yaml(content)
    except json.JSONDecodeError as error:
        raise _refusal(path, f"line {error.lineno}: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise _refusal(path, f"{line}{error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        # For example, the text is not UTF-8, or a date is invalid.
        raise _refusal(path, str(error).splitlines()[0]) from error
    except RecursionError as error:
        raise _refusal(path, "it is nested too deeply") from error


def _from_json(content: bytes) -> Any:
    return json.loads(content, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_repeated([key for key, _ in pairs])
    return dict(pairs)


def _from_yaml(content: bytes) -> Any:
    # In steps: loaded in one call, a repeated key would silently lose all but its last value.
    loader = yaml.SafeLoader(content)
    try:
        node = loader.get_single_node()
        _check_keys(node, set())
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(node: yaml.Node | None, seen: set[int]) -> None:
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    # A node with several references may even contain itself.
    seen.add(id(node))
    inner = node.value
    if isinstance(node, yaml.MappingNode):
        _refuse_repeated([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        inner = [value for _, value in node.value]
    for item in inner:
        _check_keys(item, seen)


def _refuse_repeated(keys: Sequence[str]) -> None:
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"the key {repeated[0]!r} appears twice in one object")


def _listed(path: Path, content: Any) -> list[Any]:
    if isinstance(content, dict) and [*content] == ["rules"]:
        content = content["rules"]
    if not isinstance(content, list):
        raise _refusal(
            path, 'it must contain a list of rules, or an object with such a list under "rules" and no other key'
        )
    if len(content) > RULES_MAX:
        raise _refusal(path, f"it must contain at most {RULES_MAX:,} rules")
    return content


def _described(violation: FieldViolation, rules: Sequence[Any]) -> str:
    """The problem, with the number of the rule from 1 on, and its name if it has one."""
    found = _RULE_FIELD.fullmatch(violation.field)
    if found is None:
        return f"{violation.field} {violation.description}"
    index, field = int(found[1]), found[2]
    rule = rules[index]
    name = rule.get("name") if isinstance(rule, dict) else None
    named = f"rule {index + 1} ({name!r})" if isinstance(name, str) else f"rule {index + 1}"
    return f"{named}: {field} {violation.description}" if field else f"{named} {violation.description}"


def _refusal(path: Path, problem: str) -> ConfigurationError:
    # Without its folder: a client may read this if its call opens the vault.
    return ConfigurationError(f"the rules file {path.name}: {problem}")
