"""Repairs the vault in a folder that no server uses: what is derived from its records and its events is made anew."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.damage import PageDamagedError
from mnemon_server.domain.errors import MnemonError, RecordDamagedError, StorageFailedError
from mnemon_server.engines import vault_files
from mnemon_server.engines.access_copy import AccessCopy
from mnemon_server.engines.access_file import COPY_NAME, FILE_NAME, LOCK_NAME, AccessDamagedError, AccessFile
from mnemon_server.engines.events.engine import EventRecords
from mnemon_server.engines.events.inspection import SegmentReport, find_segments, inspect_folder
from mnemon_server.engines.events.segment_files import SegmentDamagedError
from mnemon_server.engines.events.segments import lost_count
from mnemon_server.engines.events.text_file import discard
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.folder import FolderLock, alone
from mnemon_server.engines.master_keys import VaultKeyError
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.pages.database import has_log
from mnemon_server.engines.sqlite.pages.mark import MARK_FILE
from mnemon_server.engines.sqlite.schema import open_reader
from mnemon_server.engines.sqlite.upkeep.rebuilding import NotDerivableError, rebuild
from mnemon_server.engines.sqlite.upkeep.verification import DamagedRow, RecordsVerifier, open_still
from mnemon_server.engines.vault_folders import VAULT_GONE
from mnemon_server.engines.vault_key import KEY_FILE, VaultKeyFile

TIMELINE = "timeline"
REBUILT = "rebuilt from the records, with all of records.db"
_WARM_S = 1.0
_LOST_EVENTS = "SELECT coalesce(sum(event_count), 0) FROM timeline_lost"

Track = Callable[[str, int], Callable[[int], object]]
"""Begins a task with a name and a number of steps; returns a function that advances it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is damaged."""

    file: str
    """Relative to the folder of the vault."""
    problem: str
    remedy: str = ""
    """The remedy, as a participle; empty if it cannot be derived from anything."""
    advice: str = "restore a backup of the vault"
    """Advice for the operator if there is no remedy."""


def access_damage(keys: VaultKeyFile) -> Iterator[tuple[str, str]]:
    """The damaged files among the file of keys and tenants, its copy and its key, each with its problem."""
    if _copy_of(keys).is_alone():
        yield FILE_NAME, VAULT_GONE
    for path in (keys.folder / FILE_NAME, keys.folder / COPY_NAME):
        if path.exists() and (problem := vault_files.damaged_pages(path, keys, open_reader)):
            yield path.name, problem
    if not _is_whole(keys):
        yield keys.name, "one of the two copies of the key in it is damaged"


def repair_access(keys: VaultKeyFile, *, dry_run: bool) -> Iterator[Finding]:
    """Repairs the file of keys and tenants, and yields everything that was found. No server may use it."""
    found = [*access_damage(keys)]
    remedy, advice = "put back from its second copy", ""
    if found:
        try:
            _mend(_copy_of(keys), keys, dry_run=dry_run)
        except PageDamagedError as error:
            remedy, advice = "", str(AccessDamagedError(keys.folder / error.collection, error))
        except MnemonError as error:
            remedy, advice = "", str(error)
    yield from (Finding(file, text, remedy, advice) for file, text in found)


def _copy_of(keys: VaultKeyFile) -> AccessCopy:
    return AccessCopy(keys.folder / FILE_NAME, keys.folder / COPY_NAME, keys)


def _mend(copy: AccessCopy, keys: VaultKeyFile, *, dry_run: bool) -> None:
    with closing(copy):
        if copy.is_alone():
            with alone(keys.folder / LOCK_NAME), translated("write", FILE_NAME):
                copy.restore(dry_run=dry_run)
        elif dry_run:
            copy.mend(dry_run=True)
    if not dry_run:
        AccessFile(keys.folder, keys.master).close()


def _is_whole(keys: VaultKeyFile) -> bool:
    try:
        return keys.is_whole()
    except VaultKeyError:
        return True  # told where it is used


class VaultRepair:
    """The repair of one vault. No server may use it, nor begin to."""

    def __init__(self, keys: VaultKeyFile, track: Track, *, dry_run: bool) -> None:
        """Opens nothing yet. A dry run changes nothing."""
        self._keys = keys
        self._file = keys.folder / RECORDS
        self._track = track
        self._dry_run = dry_run
        self._must_open = False
        self._has_key = True

    def run(self) -> Iterator[Finding]:
        """Repairs what can be repaired, and yields everything that was found.

        Raises:
            FolderInUseError: another process uses the vault.
            ConfigurationError: records.db has another format.
            StorageFullError, StorageFailedError: the disk is full, or failed.
        """
        yield from self._records()
        if self._has_key:
            yield from self._derived()
            yield from self._segments()

    # records.db

    def _records(self) -> Iterator[Finding]:
        try:
            found = self._verified(self._file)
        except (StorageFailedError, RecordDamagedError, VaultKeyError) as error:
            self._has_key = not isinstance(error, VaultKeyError)
            found = [DamagedRow("", "", str(error))]
        rewritten = [each for each in found if each.table in {KEY_FILE, MARK_FILE}]
        self._must_open = bool(rewritten)
        yield from (Finding(each.table, each.problem, "rewritten") for each in rewritten)
        damaged = [each for each in found if each not in rewritten]
        if damaged:
            yield from self._rebuilt(damaged, known=set(found))

    def _verified(self, file: Path) -> list[DamagedRow]:
        with RecordsVerifier(file, self._keys) as verifier:
            advance = self._track(f"Reading {file.parent.name}/{file.name}", verifier.row_count)
            found: list[DamagedRow] = []
            for step in verifier.run():
                advance(step.rows)
                found += step.damages
            return found

    def _rebuilt(self, damaged: Sequence[DamagedRow], known: set[DamagedRow]) -> Iterator[Finding]:
        """Rebuilds records.db. `known` is all that is damaged, also beside it.

        What is damaged in the new file, too, was damaged before it was stored.
        """
        left = set(damaged)

        def check(file: Path) -> None:
            left.intersection_update(found := self._verified(file))
            if not known.issuperset(found):
                raise StorageFailedError(f"the new {RECORDS} is not what was written, and the old one stays")

        problem = ""
        if self._has_key:
            advance = self._track(f"Rebuilding {self._file.parent.name}/{self._file.name}", 0)
            try:
                with FolderLock(self._keys.folder):
                    rebuild(self._file, self._keys, advance, check=check, dry_run=self._dry_run)
            except NotDerivableError as error:
                problem = f"the table {error.collection} cannot be read to its end, so nothing in the file was changed"
            except (RecordDamagedError, apsw.Error) as error:
                problem = f"it cannot be rebuilt: {error}"
        for each in damaged:
            text = str(each) if each.table else each.problem
            yield Finding(RECORDS, text, "" if each in left else REBUILT)
        if problem:
            yield Finding(RECORDS, problem)

    # Derived files

    def _derived(self) -> Iterator[Finding]:
        for path, problem in [*vault_files.damaged_files(self._keys, open_still)]:
            if not self._dry_run:
                with FolderLock(self._keys.folder), translated("remove", path.name):
                    discard(path)
            yield Finding(self._name(path), problem, "removed; the next start of a server makes it again")

    # The timeline

    def _segments(self) -> Iterator[Finding]:
        missing = vault_files.missing_segments(self._keys, open_still)
        yield from (Finding(self._name(path), "the file is missing") for path in missing)
        unsound = [each for each in self._inspected() if not each.is_sound]
        left, lost, problem = set[Path](), 0, ""
        if unsound or missing or (self._must_open and not self._dry_run):
            try:
                lost = self._lost_by({each.path.name for each in unsound} | {path.name for path in missing})
            except RecordDamagedError as error:
                problem = str(error)
            if not self._dry_run:
                left = {each.path for each in self._inspected() if not each.is_sound}
        for each in unsound:
            remedy = "" if each.path in left else "rewritten with the events that can be read"
            yield Finding(self._name(each.path), each.problem, remedy)
        if lost:
            yield Finding(TIMELINE, f"lost events: {lost:,}")
        if problem:
            yield Finding(RECORDS, problem)

    def _inspected(self) -> list[SegmentReport]:
        paths = find_segments(self._keys.folder)
        advance = self._track(f"Reading the timeline of {self._file.parent.name}", len(paths))
        reports = []
        for report in inspect_folder(paths, self._keys.master):
            advance(1)
            reports.append(report)
        return reports

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._keys.folder))

    def _lost_by(self, names: Collection[str]) -> int:
        """Repairs the timeline; returns how many events it lost. A dry run only counts those in the files."""
        if not self._dry_run:
            return self._scrubbed()
        try:
            with closing(open_still(self._file, self._keys)) as records:
                return lost_count(self._keys, records, names, is_at_rest=not has_log(self._file))
        except (apsw.Error, SegmentDamagedError) as error:
            raise RecordDamagedError(RECORDS) from error

    def _scrubbed(self) -> int:
        """Opens the vault, which rewrites its key file and its mark, and repairs the timeline; returns how many events
        were lost.
        """
        journal = Journal(system_clock)
        with FolderLock(self._keys.folder):
            connections = Connections(self._file, self._keys)
            events = EventRecords(self._keys, journal, connections)
            connections.open([events.follower, journal])
            with closing(connections):
                before = self._lost(connections)
                with closing(events.upkeep(system_clock)) as upkeep:
                    upkeep.start()
                    while not upkeep.wait_until_warm(_WARM_S):
                        if problem := upkeep.failure():
                            raise StorageFailedError(problem)
                    upkeep.scrub()
                    if problem := upkeep.failure():
                        raise StorageFailedError(problem)
                return self._lost(connections) - before

    @staticmethod
    def _lost(connections: Connections) -> int:
        with connections.lend() as connection:
            return int(connection.execute(_LOST_EVENTS).get)
