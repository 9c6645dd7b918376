"""The command `mnemon-server`."""

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
from mnemon.shared.terminal import Seconds, echo

from mnemon_server import __version__
from mnemon_server.commands.audit import audit
from mnemon_server.commands.backup import backup
from mnemon_server.commands.errors import explained
from mnemon_server.commands.isolation.command import verify_isolation
from mnemon_server.commands.keys import keys
from mnemon_server.commands.progress import progress
from mnemon_server.commands.rekey import rekey
from mnemon_server.commands.repair import repair
from mnemon_server.commands.restore import restore
from mnemon_server.commands.shadow import shadow
from mnemon_server.commands.signing_keys import erasure_key, tool_jwks
from mnemon_server.commands.tenants import tenants
from mnemon_server.commands.timeline_commands import timeline
from mnemon_server.commands.verify import verify
from mnemon_server.config.address import Address
from mnemon_server.config.loading import CONFIG_FILE_VARIABLE, LoadedSettings, hint_at_variable, load_settings
from mnemon_server.config.reference import render_markdown
from mnemon_server.config.settings import SETTINGS
from mnemon_server.config.values import Setting, Texts

_DEFAULT_COMMAND = "serve"


class _Group(click.Group):
    """A command group with a default command, which explains the errors of all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version")):
            args = [_DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with explained():
            return super().invoke(ctx)


def _configured(command: Callable[..., None]) -> Callable[..., None]:
    """Adds a flag for every setting, and passes the resulting settings to the command."""

    def load(config: Path | None, **arguments: Any) -> None:
        flags = {name: arguments.pop(name, None) for name in SETTINGS}
        loaded = load_settings(file=config, environ=os.environ, flags=flags)
        command(loaded, **arguments)

    for row in reversed(list(SETTINGS.values())):
        if row.flag:
            load = _option(row)(load)
    file_help = f"TOML file with settings; {CONFIG_FILE_VARIABLE} can name it, too."
    load = click.option("--config", type=click.Path(path_type=Path), help=file_help)(load)
    load.__name__, load.__doc__ = command.__name__, command.__doc__
    return load


def _option(row: Setting) -> Callable[[Callable[..., None]], Callable[..., None]]:
    shown = row.show(row.default)
    text = f"{row.help} [{row.variables[0]}{f'; default {shown}' if shown else ''}]"
    if row.type is bool:
        return click.option(f"{row.flag}/--no-{row.flag[2:]}", row.name, default=None, help=text)
    separator = "," if row.type == Texts else "|"
    kinds: dict[Any, str] = {int: "NUMBER", float: "NUMBER", Path: "PATH", Texts: "TEXT,..."}
    metavar = separator.join(row.choices) or kinds.get(row.type, "TEXT")
    return click.option(row.flag, row.name, default=None, metavar=metavar, help=text)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mnemon-server")
def cli() -> None:
    """The Mnemon server. The default command is serve."""


cli.add_command(audit)
cli.add_command(backup)
cli.add_command(keys)
cli.add_command(rekey)
cli.add_command(repair)
cli.add_command(restore)
cli.add_command(shadow)
cli.add_command(tenants)
cli.add_command(timeline)
cli.add_command(tool_jwks)
cli.add_command(erasure_key)
cli.add_command(verify)
cli.add_command(verify_isolation)


@cli.command()
@_configured
def serve(loaded: LoadedSettings) -> None:
    """Serve until SIGTERM or Ctrl-C. A second signal ends the process immediately."""
    # Objects made by imports stay. Collections that scan them again and again take a tenth of the time of the imports.
    gc.disable()
    from mnemon_server.commands.serving import run_server

    gc.freeze()
    gc.enable()
    run_server(loaded)


@cli.command()
@_configured
def prepare(loaded: LoadedSettings) -> None:
    """Prepare the embedding model ahead of time, so that serve starts at once; print its identity."""
    from mnemon_server.assembly.embedder import open_configured_embedder

    report = partial(echo, err=True)
    with closing(open_configured_embedder(loaded.settings, report)) as embedder:
        embedder.embed(["ready"])
        identity = embedder.model.identity
    echo(identity)


@cli.command()
@_configured
def reembed(loaded: LoadedSettings) -> None:
    """Replace the vectors of all documents by those of the configured model. The server must not be running."""
    from mnemon_server.commands.reembed import reembed_documents

    total = 0
    with progress() as bar:
        task = bar.add_task("Embedding", total=None)
        for done, total in reembed_documents(loaded.settings):
            bar.update(task, completed=done, total=total)
    echo(f"{total} documents have new vectors")


@cli.command("check-config")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table of all settings, without values.")
@_configured
def check_config(loaded: LoadedSettings, *, as_json: bool, as_markdown: bool) -> None:
    """Print every setting with its value and origin; fail if one is invalid."""
    if as_markdown:
        click.echo(render_markdown(), nl=False)
        return
    rows = _describe(loaded)
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        echo(f"{row['name']:{width}}  {row['value'] or '(empty)'}  ({row['origin']})")
    for name in loaded.unknown_variables:
        echo(f"note: {name} is set but is not a setting{hint_at_variable(name)}", err=True)


@cli.command()
@click.option("--address", help="Address of the server; by default the one in the settings.")
@click.option(
    "--service", default="readiness", show_default=True, help="liveness, readiness, or a service's full name."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min=0, min_open=True),
    default=3.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)
@click.option(
    "--ca", type=click.Path(path_type=Path, exists=True), help="PEM file with the certificate authority; enables TLS."
)
@click.option("--server-name", help="The name in the server's certificate, if it differs from the address.")
def health(address: str | None, service: str, timeout_s: float, ca: Path | None, server_name: str | None) -> None:
    """Query the health of a running server: exit code 0 if it is serving, otherwise 1."""
    from mnemon_server.transport.health_client import ask_health

    listen = address or load_settings(environ=os.environ).settings.listen
    target = str(Address.parse(listen).dialled)
    status = ask_health(target, service, timeout_s=timeout_s, ca=ca, server_name=server_name)
    echo(status)
    sys.exit(0 if status == "SERVING" else 1)


@cli.command()
def version() -> None:
    """Print the version."""
    echo(__version__)


def _describe(loaded: LoadedSettings) -> list[dict[str, Any]]:
    values = asdict(loaded.settings)
    return [
        {
            "name": row.name,
            "value": row.show(values[row.name]),
            "origin": loaded.origins[row.name],
            "environment": list(row.variables),
            "flag": row.flag,
        }
        for row in SETTINGS.values()
    ]
