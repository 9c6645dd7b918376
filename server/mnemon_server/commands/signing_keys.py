"""The commands that print public keys: `mnemon-server erasure-key` and `mnemon-server tool-jwks`."""

import json
from pathlib import Path

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, data_dir_option


@click.command()
@data_dir_option
def erasure_key(data_dir: Path | None) -> None:
    """Print the public key (Ed25519, hexadecimal) that verifies receipts of erasures. A server may be running.

    If the data folder has no key yet, one is made.
    """
    from mnemon_server.engines.signing_key import ERASURE_KEY, open_key

    echo(open_key(DataFolder(data_dir).path, ERASURE_KEY).public_bytes.hex())


@click.command()
@data_dir_option
def tool_jwks(data_dir: Path | None) -> None:
    """Print the public key (JWKS) with which tools verify who calls them. A server may be running.

    If the data folder has no key yet, one is made.
    """
    from mnemon_server.engines.signing_key import TOOL_KEY, open_key

    echo(json.dumps(open_key(DataFolder(data_dir).path, TOOL_KEY).jwks, indent=2))
