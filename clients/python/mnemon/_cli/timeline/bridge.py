"""The commands for the bridge from the timeline to semantic memory."""

from typing import Any

import click

from mnemon._cli.options import json_option
from mnemon._cli.session import Session
from mnemon._cli.timeline import render as event_render
from mnemon._terminal import echo
from mnemon._values import bridge as bridge_values
from mnemon._values.semantic import ConflictPolicy


@click.group()
def bridge() -> None:
    """Control the bridge, which saves events of the timeline as statements, and takes them back after a prune."""


@bridge.command()
@json_option
@click.pass_obj
def status(session: Session, *, as_json: bool) -> None:
    """Show the state of the bridge, and what it has done."""
    found = session.client.bridge.status()
    if as_json:
        echo(found.to_json())
    else:
        session.console.print(event_render.bridge_table(found))


@bridge.command()
@click.pass_obj
def pause(session: Session) -> None:
    """Stop the bridge until it is resumed, even if the server restarts; events wait."""
    session.client.bridge.pause()
    echo("paused")


@bridge.command()
@click.pass_obj
def resume(session: Session) -> None:
    """Let the bridge continue where it stopped."""
    session.client.bridge.resume()
    echo("resumed")


@bridge.command()
@click.option(
    "--min-importance", type=click.FloatRange(0, 1), help="Events of at least this importance become statements."
)
@click.option("--type", "event_types", multiple=True, help="Events of this type become statements; repeatable.")
@click.option(
    "--mode",
    type=click.Choice([each.value for each in bridge_values.RoutingMode]),
    help="Whether both conditions must be met, or one is enough.",
)
@click.option("--content-max", type=int, help="Maximum length of a statement in characters.")
@click.option(
    "--on-prune",
    type=click.Choice([each.value for each in bridge_values.PruneAction]),
    help="What happens to a statement whose events were pruned.",
)
@click.option("--demoted-importance", type=click.FloatRange(0, 1), help="The maximum importance after demoting.")
@click.option(
    "--conflicts",
    "conflict_policy",
    type=click.Choice([each.value for each in ConflictPolicy]),
    help="How a save handles conflicts.",
)
@click.option("--reset", is_flag=True, help="Reset all other fields to their defaults.")
@json_option
@click.pass_obj
def policy(session: Session, /, *, reset: bool, as_json: bool, **given: Any) -> None:
    """Show which events become statements, and how; or change the given fields."""
    changes = {name: value for name, value in given.items() if value not in (None, ())}
    if reset or changes:
        held = session.client.bridge.update_policy(bridge_values.RoutingPolicy() if reset else None, **changes)
    else:
        held = session.client.bridge.policy()
    if as_json:
        echo(held.to_json())
    else:
        session.console.print(event_render.policy_table(held))
