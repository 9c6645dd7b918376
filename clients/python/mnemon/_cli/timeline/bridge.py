"""The commands for the bridge from the timeline to what is known of users."""

from typing import Any

import click

from mnemon._cli.options import json_option
from mnemon._cli.session import Session
from mnemon._cli.timeline import render as event_render
from mnemon._values import bridge as bridge_values
from mnemon._values.semantic import ConflictPolicy


@click.group()
def bridge() -> None:
    """Steer the bridge, which saves events of the timeline as statements, and takes back what was pruned."""


@bridge.command()
@json_option
@click.pass_obj
def status(session: Session, *, as_json: bool) -> None:
    """Say how the bridge is, and what it did."""
    found = session.client.bridge_status()
    if as_json:
        click.echo(found.to_json())
    else:
        session.console.print(event_render.bridge_table(found))


@bridge.command()
@click.pass_obj
def pause(session: Session) -> None:
    """Stop it until it is resumed, over restarts of the server; events wait."""
    session.client.pause_bridge()
    click.echo("paused")


@bridge.command()
@click.pass_obj
def resume(session: Session) -> None:
    """Let it go on where it stopped."""
    session.client.resume_bridge()
    click.echo("resumed")


@bridge.command()
@click.option("--min-importance", type=click.FloatRange(0, 1), help="Events at least so important pass.")
@click.option("--type", "event_types", multiple=True, help="Events of this type pass; repeatable.")
@click.option(
    "--mode",
    type=click.Choice([each.value for each in bridge_values.RoutingMode]),
    help="Whether both must fit, or one is enough.",
)
@click.option("--content-max", type=int, help="Most characters of a statement.")
@click.option(
    "--on-prune",
    type=click.Choice([each.value for each in bridge_values.PruneAction]),
    help="What becomes of a statement whose events were pruned.",
)
@click.option("--demoted-importance", type=click.FloatRange(0, 1), help="The importance that demoting leaves at most.")
@click.option(
    "--conflicts",
    "conflict_policy",
    type=click.Choice([each.value for each in ConflictPolicy]),
    help="What a save does about conflicts.",
)
@click.option("--reset", is_flag=True, help="What is not given gets its default.")
@json_option
@click.pass_obj
def policy(session: Session, /, *, reset: bool, as_json: bool, **given: Any) -> None:
    """Show which events become statements, and how; or change what is given."""
    changes = {name: value for name, value in given.items() if value not in (None, ())}
    if reset or changes:
        held = session.client.update_routing_policy(bridge_values.RoutingPolicy() if reset else None, **changes)
    else:
        held = session.client.routing_policy()
    if as_json:
        click.echo(held.to_json())
    else:
        session.console.print(event_render.policy_table(held))
