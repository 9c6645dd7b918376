"""The data folder of a command, and the master key with which its vaults are read."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mnemon_server.config.loading import load_settings
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.master_keys import MasterKeys

if TYPE_CHECKING:
    from mnemon_server.engines.access_file import AccessFile
    from mnemon_server.engines.folder import FolderLock

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    help="Folder for all data. [MNEMON_DATA_DIR]",
)
master_key_option = click.option(
    "--master-key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the master key, if the vaults have one. [MNEMON_MASTER_KEY_FILE]",
)


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data folder of a command, and how to read its files."""

    given: Path | None = None
    master_key_file: Path | None = None

    @property
    def path(self) -> Path:
        """The folder that was given, or that of the settings."""
        return self.given or load_settings(environ=os.environ).settings.data_dir

    @property
    def vaults(self) -> Path:
        """The folder of all vaults."""
        from mnemon_server.engines.vault_folders import vaults_folder

        return vaults_folder(self.path)

    def master_keys(self) -> MasterKeys:
        """The master keys in the file that was given, or of the settings. Raises the same as `read_master_keys`."""
        from mnemon_server.assembly.master_keys import read_master_keys

        flags = {"master_key_file": self.master_key_file}
        return read_master_keys(load_settings(environ=os.environ, flags=flags).settings)

    def locked(self) -> "FolderLock":
        """The lock that keeps servers out of the vaults. Raises ConfigurationError if one runs."""
        from mnemon_server.engines.folder import FolderInUseError, FolderLock

        vaults = self.vaults
        try:
            return FolderLock(vaults)
        except FolderInUseError as error:
            raise ConfigurationError(
                f"a server uses {str(vaults)!r}, and nothing has changed: stop it first"
            ) from error

    def open_access(self, *, create: bool = False) -> "AccessFile":
        """Opens the file of keys and tenants, for the caller to close. Creates it only with `create`.

        Raises:
            ConfigurationError: there is no such file.
            MnemonError, OSError: as AccessFile.
        """
        from mnemon_server.engines.access_file import AccessFile, has_access_file

        if not create and not has_access_file(self.path):
            try:
                self.path.stat()
                lacks = "has no API keys and no tenants"
            except FileNotFoundError:
                lacks = "does not exist"
            raise ConfigurationError(f"the data folder {str(self.path)!r} {lacks}; check --data-dir or MNEMON_DATA_DIR")
        return AccessFile(self.path, self.master_keys())


def with_folder(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of its data folder, as the argument `folder`."""

    @data_dir_option
    @master_key_option
    @wraps(command)
    def run(*, data_dir: Path | None, master_key_file: Path | None, **arguments: Any) -> None:
        command(**arguments, folder=DataFolder(data_dir, master_key_file))

    return run
