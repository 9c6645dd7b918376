"""The command `mnemon-server erasure-key`, which prints the key that verifies receipts of erasures."""

import os
from pathlib import Path

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.master_keys import data_dir_option
from mnemon_server.config.loading import load_settings


@click.command()
@data_dir_option
def erasure_key(data_dir: Path | None) -> None:
    """Print the public key (Ed25519, hexadecimal) that verifies receipts of erasures. A server may be running.

    If the data folder has no key yet, one is made.
    """
    from mnemon_server.engines.signing_key import ERASURE_KEY, open_key

    key = open_key(data_dir or load_settings(environ=os.environ).settings.data_dir, ERASURE_KEY)
    echo(key.public_bytes.hex())
