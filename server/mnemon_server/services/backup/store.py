"""The backup service: copies a vault to its caller, or to the folder that the operator has set."""

import re
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack
from typing import Self

from mnemon_server.domain.backup import (
    BackupError,
    BackupPart,
    BackupProgress,
    BackupStep,
    BackupSummary,
    BackupTarget,
    Manifest,
    parse_manifest,
)
from mnemon_server.domain.errors import ConfigurationError, FieldViolation, InvalidArgumentError, InvalidOperationError
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.backup import BackupFolder, BackupWriter, Copyable
from mnemon_server.services.background.offload import Offload

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
NAME_RULE = 'must be 1 to 64 letters, digits, "_", "-" and ".", a letter or digit first'
REPORT_EVERY_S = 0.25


class BackupStore:
    """Makes backups of one vault. All methods are safe to call from many tasks at once. An async context manager."""

    def __init__(self, vault: Copyable | None, folder: BackupFolder | None) -> None:
        """Copies nothing yet. Without a vault, it is in memory; without a folder, backups with a name are refused."""
        self._vault = vault
        self._folder = folder
        # One thread, so that a backup is never closed while it takes a step.
        self._offload = Offload(1, "backup")

    async def create(self, target: BackupTarget) -> AsyncGenerator[BackupProgress | BackupPart | BackupSummary]:
        """Progress, the parts of the files unless they have a place in the folder, and a summary.

        Raises:
            InvalidArgumentError: a name or the base is not valid.
            InvalidOperationError: the vault is in memory, another backup is being made, or the name is taken.
            ConfigurationError: there is no folder for backups.
            StorageFullError, StorageFailedError: the disk is full, or failed.
        """
        refuse(_violations(target))
        if self._vault is None:
            raise InvalidOperationError("a vault in memory cannot be backed up; export it with ExportRecords")
        if target.name and self._folder is None:
            raise ConfigurationError("the server keeps no backups: set backup_dir, or leave the name out to receive it")
        base = await self._offload(self._base, target)
        steps = self._vault.back_up(base)
        stack = ExitStack()
        try:
            writer = await self._offload(self._begin, stack, target.name)
            async for message in self._messages(steps, writer):
                yield message
        finally:
            await self._offload(_close, steps, stack)

    async def _messages(
        self, steps: Generator[BackupStep], writer: BackupWriter | None
    ) -> AsyncGenerator[BackupProgress | BackupPart | BackupSummary]:
        size, reported_at = 0, float("-inf")
        while True:
            step, written = await self._offload(_advance, steps, writer)
            size += written
            match step:
                case BackupPart(data=data):
                    size += len(data)
                    yield step
                case BackupProgress(done=done, total=total):
                    if done == total or time.monotonic() - reported_at >= REPORT_EVERY_S:
                        reported_at = time.monotonic()
                        yield step
                case Manifest():
                    if writer:
                        await self._offload(writer.commit)
                    yield BackupSummary(step, size)
                    return

    def _begin(self, stack: ExitStack, name: str) -> BackupWriter | None:
        return stack.enter_context(self._folder.writer(name)) if name and self._folder else None

    def _base(self, target: BackupTarget) -> Manifest | None:
        data: bytes | None = target.base_manifest
        field = "base_manifest"
        if target.base_name and self._folder:
            field = "base_name"
            if (data := self._folder.manifest(target.base_name)) is None:
                raise InvalidArgumentError.of(field, f"must be that of a backup; there is no {target.base_name!r}")
        try:
            return parse_manifest(data) if data else None
        except BackupError as error:
            raise InvalidArgumentError.of(field, str(error)) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Waits for the step that has begun; later calls fail."""
        await self._offload.aclose()


def _advance(steps: Generator[BackupStep], writer: BackupWriter | None) -> tuple[BackupStep, int]:
    """The next step that the caller gets, and how many bytes were written before it."""
    written = 0
    while True:
        step = next(steps)
        if writer is None or not isinstance(step, BackupPart):
            return step, written
        writer.write(step.path, step.data)
        written += len(step.data)


def _close(steps: Generator[BackupStep], stack: ExitStack) -> None:
    steps.close()
    stack.close()


def _violations(target: BackupTarget) -> list[FieldViolation]:
    names = {"name": target.name, "base_name": target.base_name}
    found = [FieldViolation(field, NAME_RULE) for field, name in names.items() if name and not NAME.fullmatch(name)]
    if target.base_name and not target.name:
        found.append(FieldViolation("base_name", "must be empty without a name; send base_manifest instead"))
    if target.base_manifest and target.name:
        found.append(FieldViolation("base_manifest", "must be empty with a name; send base_name instead"))
    return found
