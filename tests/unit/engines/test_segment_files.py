"""The files below segments, and what a writer leaves behind after errors and power cuts."""

import contextlib
import errno
import logging
import os
import queue
import random
import stat
import threading
from collections.abc import Callable
from logging.handlers import QueueHandler
from pathlib import Path

import pytest
from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines import file_errors
from mnemon_server.engines.events.format.files import Files, OsFiles
from mnemon_server.engines.events.format.layout import HEADER_BYTES, SegmentDamagedError, segment_name
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.format.segment_writer import SealedFile, SegmentWriter
from mnemon_server.engines.file_errors import translated

from tests.support.faulty_files import FaultyFiles, Operation
from tests.support.segment_files import EPOCH, INDEX, bodies, header, summary, write_open, write_sealed

NAME = segment_name(1, 1)
STORAGE_ERRORS = (StorageFullError, StorageFailedError)
EVENTS = bodies(60, longest=700)
BATCHES = [EVENTS[start : start + 6] for start in range(0, len(EVENTS), 6)]


@pytest.fixture(params=["system", "faulty"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return OsFiles(tmp_path / "timeline") if request.param == "system" else FaultyFiles()


def test_appended_bytes_are_read_back_at_any_offset(files: Files) -> None:
    file = files.create("a")
    file.append(b"0123")
    file.append(b"")
    file.append(b"456789")
    file.sync()
    reader = files.open_read("a")
    assert (file.size, reader.size()) == (10, 10)
    assert (reader.pread(3, 2), reader.pread(99, 8), reader.pread(9, 10), reader.pread(9, 99)) == (
        b"234",
        b"89",
        b"",
        b"",
    )
    file.close()
    again = files.open_append("a")
    again.truncate(4)
    again.append(b"xy")
    assert (again.size, reader.pread(99, 0)) == (6, b"0123xy")
    for opened in (file, again, reader):
        opened.close()
        opened.close()


@pytest.mark.parametrize(("error", "level"), [(errno.ENOENT, "INFO"), (errno.EIO, "ERROR"), (errno.ENOSPC, "ERROR")])
def test_the_log_does_not_report_a_missing_file_as_a_disk_failure(
    error: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = queue.SimpleQueue[logging.LogRecord]()
    logger = logging.getLogger("of this test")
    monkeypatch.setattr(logger, "handlers", [QueueHandler(said)])
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    monkeypatch.setattr(file_errors, "log", logger)
    with pytest.raises(STORAGE_ERRORS), translated("open", "a"):
        raise OSError(error, os.strerror(error))
    record = said.get_nowait()
    assert (record.levelname, record.getMessage()) == (level, f"could not open a: {OSError(error, os.strerror(error))}")


def test_names_are_created_once_renamed_over_others_and_removed(files: Files) -> None:
    assert files.names() == []
    for name in ("b", "a"):
        file = files.create(name)
        file.append(name.encode())
        file.close()
    with pytest.raises(StorageFailedError, match="could not create a"):
        files.create("a")
    assert files.names() == ["a", "b"]
    files.rename("b", "a")
    files.sync_folder()
    assert files.names() == ["a"]
    with contextlib.closing(files.open_read("a")) as reader:
        files.unlink("a")
        files.unlink("a")
        assert files.names() == []
        assert reader.pread(9, 0) == b"b"
    for attempt in (files.open_read, files.open_append, lambda name: files.rename(name, "c")):
        with pytest.raises(StorageFailedError):
            attempt("a")


def test_a_copy_is_whole_and_replaces_the_previous_file(files: Files, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(2_500_000)
    file = files.create("a")
    file.append(content)
    file.close()
    for target in (OsFiles(tmp_path / "quarantine"), FaultyFiles()):
        for _ in range(2):
            files.copy_to("a", target)
            assert target.names() == ["a"]
            with contextlib.closing(target.open_read("a", uncached=True)) as copy:
                assert copy.pread(3_000_000, 0) == content


def test_folder_and_files_are_private_to_the_owner(tmp_path: Path) -> None:
    folder = tmp_path / "timeline"
    write_sealed(OsFiles(folder), bodies(3))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


def test_errors_name_the_file_but_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError) as caught:
        OsFiles(tmp_path).open_read(NAME)
    assert NAME in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / NAME).symlink_to(tmp_path / "secret")
    files = OsFiles(tmp_path)
    assert files.names() == ["secret"]
    for attempt in (files.open_read, files.open_append, files.create):
        with pytest.raises(StorageFailedError):
            attempt(NAME)


def test_several_threads_read_while_one_appends(tmp_path: Path) -> None:
    files, events = OsFiles(tmp_path), bodies(3_000)
    writer = SegmentWriter.create(files, NAME, header())
    offsets, wrong, done = [writer.append(*events[0])], [], threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        with SegmentReader(files, NAME, epoch=EPOCH) as reader:
            while not done.is_set():
                picked = sorted(rng.randrange(len(offsets)) for _ in range(20))
                frames = reader.read_many([offsets[n] for n in picked])
                wrong.extend(n for n, f in zip(picked, frames, strict=True) if (f.sequence, f.body) != events[n])

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for start in range(1, len(events), 7):
        offsets.extend(writer.append_many(events[start : start + 7]))
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(offsets) == len(events)


def write_all(files: FaultyFiles, acknowledged: list[int]) -> SealedFile:
    """Writes and seals a segment. Notes the size after each sync, and -1 after the seal."""
    writer = SegmentWriter.create(files, NAME, header())
    acknowledged.append(writer.size)
    for batch in BATCHES:
        writer.append_many(batch)
        writer.sync()
        acknowledged.append(writer.size)
    sealed = writer.seal(INDEX, summary(len(EVENTS)))
    acknowledged.append(-1)
    return sealed


def finish(files: FaultyFiles, at: int) -> SealedFile:
    """What maintenance does after a failure: cuts to what was synced, appends the rest again, and seals."""
    writer = SegmentWriter.resume(files, NAME, header(), at=at)
    writer.append_many([event for event in EVENTS if event[0] > writer.last_sequence])
    return writer.seal(INDEX, summary(len(EVENTS)))


def kept(files: FaultyFiles) -> list[tuple[int, bytes]]:
    """The events up to the first damage."""
    with SegmentReader(files, NAME, epoch=EPOCH) as reader:
        return [(frame.sequence, frame.body) for frame in reader.frames(to=reader.valid_prefix())]


FAILURES: list[tuple[Operation, int, int]] = [
    *(("append", n, error) for n in range(1, len(BATCHES) + 4) for error in (errno.ENOSPC, errno.EIO)),
    *(("sync", n, error) for n in range(1, len(BATCHES) + 3) for error in (errno.ENOSPC, errno.EIO)),
    ("sync_folder", 1, errno.EIO),
    ("sync_folder", 2, errno.EIO),
]


@pytest.mark.parametrize(("operation", "nth", "error"), FAILURES)
def test_after_a_failure_nothing_synced_is_lost_and_the_file_is_finished(
    operation: Operation, nth: int, error: int
) -> None:
    files, acknowledged = FaultyFiles(), [0]
    files.fail(operation, at=nth, error=error)
    expected = StorageFullError if error == errno.ENOSPC else StorageFailedError
    with pytest.raises(expected):
        write_all(files, acknowledged)
    files.heal()
    if acknowledged == [0]:
        assert files.names() == [], "a file without a header was left behind"
        write_all(files, acknowledged)
    else:
        assert kept(files)[: len(acknowledged) * 6 - 12] == EVENTS[: len(acknowledged) * 6 - 12]
        finish(files, acknowledged[-1])
    files.crash(random.Random(nth))
    assert_sealed_whole(files)


def assert_sealed_whole(files: FaultyFiles) -> None:
    with SegmentReader(files, NAME, epoch=EPOCH) as reader:
        assert reader.verify().event_count == len(EVENTS)
        assert [(frame.sequence, frame.body) for frame in reader.frames()] == EVENTS
        assert reader.index() == INDEX


def test_a_writer_that_failed_once_can_no_longer_be_used() -> None:
    uses: list[Callable[[SegmentWriter], object]] = [
        lambda writer: writer.append(2, b"two"),
        SegmentWriter.sync,
        lambda writer: writer.seal(INDEX, summary(1)),
    ]
    for failing in uses:
        for use in uses:
            files = FaultyFiles()
            writer = SegmentWriter.create(files, NAME, header())
            writer.append(1, b"one")
            files.fail("append", at=1)
            files.fail("sync", at=1)
            with pytest.raises(StorageFailedError):
                failing(writer)
            files.heal()
            with pytest.raises(StorageFailedError, match="could not be written before"):
                use(writer)


def test_bytes_lost_by_a_failed_sync_are_written_again() -> None:
    files = FaultyFiles()
    writer = SegmentWriter.create(files, NAME, header())
    writer.append_many(BATCHES[0])
    writer.sync()
    synced = writer.size
    writer.append_many(BATCHES[1])
    files.fail("sync", at=1)
    with pytest.raises(StorageFailedError):
        writer.sync()
    finish(files, synced)
    files.crash(random.Random(0))
    assert_sealed_whole(files)


@pytest.mark.parametrize("seed", range(300))
def test_after_a_power_cut_everything_synced_is_there_and_the_file_is_finished(seed: int) -> None:
    rng = random.Random(seed)
    files, acknowledged = FaultyFiles(), [0]
    operation: Operation = rng.choice(["append", "sync", "sync_folder"])
    files.fail(operation, at=rng.randint(1, len(BATCHES) + 3))
    with contextlib.suppress(*STORAGE_ERRORS):
        write_all(files, acknowledged)
    files.heal()
    files.crash(rng)
    synced = acknowledged[-1]
    if synced == -1:
        assert_sealed_whole(files)
        return
    if synced == 0:
        files.unlink(NAME)
        write_all(files, acknowledged)
    else:
        with SegmentReader(files, NAME, epoch=EPOCH) as reader:
            assert reader.valid_prefix() >= synced, "synced events are damaged"
        whole = kept(files)
        assert whole == EVENTS[: len(whole)], "the file holds events that were not written"
        finish(files, synced)
    files.crash(rng)
    assert_sealed_whole(files)


def test_a_simulated_power_cut_loses_something_and_keeps_something() -> None:
    sizes = set()
    for seed in range(60):
        files = FaultyFiles()
        write_open(files, EVENTS[:10])
        durable = len(files.content(NAME))
        writer = SegmentWriter.resume(files, NAME, header(), at=durable)
        writer.append_many(EVENTS[10:])
        files.crash(random.Random(seed))
        sizes.add(len(files.content(NAME)) - durable)
    assert 0 in sizes and len(sizes) > 5


def test_a_file_that_reads_back_wrong_is_not_sealed() -> None:
    files = FaultyFiles()
    writer = SegmentWriter.create(files, NAME, header())
    writer.append_many(EVENTS)
    content = bytearray(files.content(NAME))
    content[HEADER_BYTES + 30] ^= 1
    for at in (1, 3):
        files.fail("pread", at=at)
        with pytest.raises(StorageFailedError):
            writer.seal(INDEX, summary(len(EVENTS)))
        files.heal()
        writer = SegmentWriter.resume(files, NAME, header(), at=len(content))
    flip_when_synced(files)
    with pytest.raises(SegmentDamagedError):
        writer.seal(INDEX, summary(len(EVENTS)))


def flip_when_synced(files: FaultyFiles) -> None:
    """Makes the disk flip a bit of the first event as soon as it is synced."""
    inode = files.inode(NAME)
    sync = inode.sync

    def flip() -> None:
        sync()
        inode.data[HEADER_BYTES + 30] ^= 1

    inode.sync = flip  # type: ignore[method-assign]
