"""Opens vaults for tests of the services above them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

DIMENSION = 64


def open_vault(
    folder: Path, clock: Clock = system_clock, *, dimension: int = DIMENSION, **settings: Any
) -> SQLiteVault:
    """A vault that need not survive a crash of the machine. `settings` are passed to VaultSettings."""
    return SQLiteVault(
        folder,
        model_identity="hashing",
        dimension=dimension,
        settings=VaultSettings(is_durable=False, **settings),
        clock=clock,
    )


@contextmanager
def temporary_vault(
    clock: Clock = system_clock, *, dimension: int = DIMENSION, **settings: Any
) -> Iterator[SQLiteVault]:
    """A new vault, of which nothing remains."""
    with TemporaryDirectory() as folder:
        vault = open_vault(Path(folder), clock, dimension=dimension, **settings)
        try:
            yield vault
        finally:
            vault.close()
