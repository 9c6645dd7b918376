"""The command `mnemon-server tool-jwks`, which prints the key that verifies who calls an operator's tool."""

import json
import os
from pathlib import Path

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.master_keys import data_dir_option
from mnemon_server.config.loading import load_settings


@click.command()
@data_dir_option
def tool_jwks(data_dir: Path | None) -> None:
    """Print the public key (JWKS) with which tools verify who calls them. A server may be running.

    If the data folder has no key yet, one is made.
    """
    from mnemon_server.engines.signing_key import TOOL_KEY, open_key

    key = open_key(data_dir or load_settings(environ=os.environ).settings.data_dir, TOOL_KEY)
    echo(json.dumps(key.jwks, indent=2))
