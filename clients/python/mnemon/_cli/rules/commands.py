"""The commands for merge rules."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich import box
from rich.console import RenderableType
from rich.table import Table

from mnemon._cli.options import json_option
from mnemon._cli.render import one_line, plain
from mnemon._cli.rules.files import read_rules
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values.rules import ResolvedRule, RuleOrder

_DESCRIPTION_CHARACTERS_MAX = 160


@click.group()
def rules() -> None:
    """Show, change and exchange the rules by which conflicts are detected, decided and merged."""


@rules.command("list")
@click.option(
    "--order",
    type=click.Choice([each.value for each in RuleOrder]),
    default=RuleOrder.REGISTRATION.value,
    show_default=True,
    help="In the order of registration, or in the order in which they are tried.",
)
@json_option
@click.pass_obj
def list_rules(session: Session, order: str, *, as_json: bool) -> None:
    """List rules."""
    found = session.client.rules.list(order=order)
    if as_json:
        for rule in found:
            echo(json.dumps(rule, ensure_ascii=False))
    else:
        session.console.print(_rule_table(found))


@rules.command()
@click.argument("name")
@click.option("--resolved", is_flag=True, help="Include everything it inherits, and from which rule.")
@json_option
@click.pass_obj
def show(session: Session, name: str, *, resolved: bool, as_json: bool) -> None:
    """Show the rule NAME as it was written."""
    if resolved:
        answer = session.client.rules.resolve(name)
        if as_json:
            echo(answer.to_json())
        else:
            session.console.print(_resolved_table(answer))
        return
    stored = session.client.rules.get(name)
    _warn(stored.warnings)
    echo(stored.to_json() if as_json else _indented(stored.rule))


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
@click.pass_obj
def load(session: Session, path: str, *, replace_all: bool, lenient: bool, as_json: bool) -> None:
    """Load the rules of FILE, all or none: JSON or YAML by its name; - is standard input, as JSON."""
    receipt = session.client.rules.load(read_rules(path), replace_all=replace_all, lenient=lenient)
    _warn(receipt.warnings)
    if as_json:
        echo(receipt.to_json())
    else:
        echo(f"{receipt.registered_count:,} new, {receipt.updated_count:,} changed, {receipt.deleted_count:,} removed")


@rules.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it even if other rules extend it; they keep what they inherited.")
@json_option
@click.pass_obj
def delete(session: Session, name: str, *, force: bool, as_json: bool) -> None:
    """Remove the rule NAME; exit code 1 if it does not exist."""
    receipt = session.client.rules.delete(name, force=force)
    echo(receipt.to_json() if as_json else f"deleted {name}")


@rules.command()
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def reset(session: Session, *, yes: bool, as_json: bool) -> None:
    """Remove all rules, and reset "default"."""
    if not yes:
        click.confirm("Remove all rules?", abort=True, err=True)
    version = session.client.rules.reset()
    echo(json.dumps({"registry_version": version}) if as_json else "all rules removed")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        echo(f"Warning: {warning}", err=True)


def _indented(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _rule_table(found: Iterable[Mapping[str, Any]]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule", overflow="fold")
    table.add_column("priority", justify="right", no_wrap=True)
    table.add_column("extends", overflow="fold")
    table.add_column("for", overflow="fold")
    table.add_column("description", ratio=1)
    for rule in found:
        name = rule["name"] + ("" if rule.get("enabled", True) else " (disabled)")
        table.add_row(
            plain(name),
            str(rule.get("priority", "")),
            plain(rule.get("extends", "")),
            plain(_conditions(rule.get("conditions", {}))),
            one_line(rule.get("description", ""), _DESCRIPTION_CHARACTERS_MAX),
        )
    return table


def _resolved_table(resolved: ResolvedRule) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("field", no_wrap=True)
    table.add_column("value", ratio=1, overflow="fold")
    table.add_column("from", overflow="fold")
    for field, value in _fields(resolved.rule):
        table.add_row(
            plain(field), plain(json.dumps(value, ensure_ascii=False)), plain(resolved.origins.get(field, ""))
        )
    return table


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
