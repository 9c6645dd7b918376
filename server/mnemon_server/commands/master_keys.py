"""What commands on a data folder need to read vaults whose keys are encrypted."""

import os
from pathlib import Path

import click

from mnemon_server.config.loading import load_settings
from mnemon_server.engines.master_keys import MasterKeys

master_key_option = click.option(
    "--master-key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the master key, if the vaults have one. [MNEMON_MASTER_KEY_FILE]",
)


def master_keys(file: Path | None) -> MasterKeys:
    """The master keys in this file, or of the settings. Raises the same as `open_master_keys`."""
    from mnemon_server.assembly.master_keys import read_master_keys

    return read_master_keys(load_settings(environ=os.environ, flags={"master_key_file": file}).settings)
