"""Reads the master keys from where the settings say: a file, the environment, or what a command prints."""

import subprocess

from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.endpoints.key_file import read_private
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys, parse_master_keys

COMMAND_TIMEOUT_S = 60.0


def read_master_keys(settings: Settings) -> MasterKeys:
    """The master keys; none if the settings name none. Blocks.

    Raises:
        ConfigurationError: the file cannot be read, or others may read it; the command fails; or there is no key.
    """
    if settings.master_key_file:
        return parse_master_keys(read_private(settings.master_key_file), f"the file {settings.master_key_file}")
    if settings.master_key_command:
        return parse_master_keys(_printed_by(settings.master_key_command), "master_key_command")
    if settings.master_key:
        return parse_master_keys(settings.master_key, "master_key")
    return NO_MASTER_KEYS


def _printed_by(command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"master_key_command has not ended after {COMMAND_TIMEOUT_S:g} s") from error
    if done.returncode:
        # Only what it says of its failure: what it prints may be a key.
        problem = done.stderr.decode(errors="replace").strip() or "it prints no error"
        raise ConfigurationError(f"master_key_command fails with exit code {done.returncode}: {problem}")
    return done.stdout.decode("ascii", "replace")
