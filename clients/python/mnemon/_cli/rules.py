"""The commands for merge rules."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich.console import RenderableType

from mnemon._cli import output as out
from mnemon._cli.options import TEXT_BYTES_MAX, choice_of, json_option, read_bytes, yes_option
from mnemon._cli.session import Session
from mnemon._json import read_json
from mnemon._values.rules import ResolvedRule, RuleOrder
from mnemon.shared.terminal import echo

_DESCRIPTION_CHARACTERS_MAX = 160
_YAML_SUFFIXES = (".yaml", ".yml")


@click.group()
def rules() -> None:
    """Show, change and exchange the rules by which conflicts are detected, decided and merged."""


@rules.command("list")
@click.option(
    "--order",
    type=choice_of(RuleOrder),
    default=RuleOrder.REGISTRATION.value,
    show_default=True,
    help="In the order of registration, or in the order in which they are tried.",
)
@json_option
def list_rules(session: Session, order: str) -> None:
    """List rules."""
    out.show_list(session, session.client.rules.list(order=order), _rule_table, limit=0)


@rules.command()
@click.argument("name")
@click.option("--resolved", is_flag=True, help="Include everything it inherits, and from which rule.")
@json_option
def show(session: Session, name: str, *, resolved: bool) -> None:
    """Show the text of the rule NAME."""
    if resolved:
        out.show(session, session.client.rules.resolve(name), _resolved_table)
        return
    stored = session.client.rules.get(name)
    _warn(stored.warnings)
    out.show(session, stored, _indented(stored.rule))


@rules.command()
@click.pass_obj
def export(session: Session) -> None:
    """Print all rules as JSON, for `load`."""
    echo(_indented(session.client.rules.export()))


@rules.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--replace-all", is_flag=True, help="Remove the rules that are not in the file.")
@click.option("--lenient", is_flag=True, help='Use "default" for a missing base.')
@json_option
def load(session: Session, path: str, *, replace_all: bool, lenient: bool) -> None:
    """Load the rules of FILE, all or none: JSON or YAML by its name; - is standard input, as JSON."""
    receipt = session.client.rules.load(_read_rules(path), replace_all=replace_all, lenient=lenient)
    _warn(receipt.warnings)
    said = f"{receipt.registered_count:,} new, {receipt.updated_count:,} changed, {receipt.deleted_count:,} removed"
    out.show(session, receipt, said)


@rules.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it even if other rules extend it; they keep what they inherited.")
@json_option
def delete(session: Session, name: str, *, force: bool) -> None:
    """Remove the rule NAME; exit code 1 if it does not exist."""
    out.show(session, session.client.rules.delete(name, force=force), f"deleted {name}")


@rules.command()
@yes_option
@json_option
def reset(session: Session, *, yes: bool) -> None:
    """Remove all rules, and reset "default"."""
    if not yes:
        click.confirm("Remove all rules?", abort=True, err=True)
    version = session.client.rules.reset()
    echo(json.dumps({"registry_version": version}) if session.as_json else "all rules removed")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        echo(f"Warning: {warning}", err=True)


def _indented(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _rule_table(found: Iterable[Mapping[str, Any]]) -> RenderableType:
    columns = {
        "rule": out.FOLDED,
        "priority": out.NUMBER,
        "extends": out.FOLDED,
        "for": out.FOLDED,
        "description": {"ratio": 1},
    }
    return out.record_table(columns, map(_rule_row, found), "no rules")


def _rule_row(rule: Mapping[str, Any]) -> list[RenderableType]:
    return [
        rule["name"] + ("" if rule.get("enabled", True) else " (disabled)"),
        str(rule.get("priority", "")),
        rule.get("extends", ""),
        _conditions(rule.get("conditions", {})),
        out.one_line(rule.get("description", ""), _DESCRIPTION_CHARACTERS_MAX),
    ]


def _resolved_table(resolved: ResolvedRule) -> RenderableType:
    rows = (
        [field, json.dumps(value, ensure_ascii=False), resolved.origins.get(field, "")]
        for field, value in _fields(resolved.rule)
    )
    return out.record_table({"field": out.SHORT, "value": out.REST, "from": out.FOLDED}, rows)


def _fields(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _conditions(conditions: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in conditions.items()
    )


# Files


def _read_rules(path: str) -> list[Any]:
    """The rules of a file, or of standard input as JSON: a list, or an object with such a list under "rules".

    Raises click.ClickException, with the place, if it is not such a list.
    """
    try:
        content = read_bytes(path)
        if len(content) > TEXT_BYTES_MAX:
            raise ValueError(f"it must be at most {TEXT_BYTES_MAX:,} bytes")
        found = _from_yaml(content) if path.lower().endswith(_YAML_SUFFIXES) else read_json(content)
    except OSError as error:
        raise click.ClickException(f"{path}: it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path}: {str(error) or 'it is nested too deeply'}") from error
    if isinstance(found, dict) and [*found] == ["rules"]:
        found = found["rules"]
    if not isinstance(found, list):
        raise click.ClickException(
            f'{path}: it must contain a list of rules, or an object with such a list under "rules"'
        )
    return found


def _from_yaml(content: bytes) -> Any:
    try:
        from mnemon._cli.yaml_text import parsed
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise ValueError("YAML needs pyyaml; install it with: pip install 'mnemon-client[cli]'") from error
    return parsed(content)
