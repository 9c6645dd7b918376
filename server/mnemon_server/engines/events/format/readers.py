"""A cache of open segment files."""

import threading
from collections import OrderedDict

from mnemon_server.engines.events.format.files import Files
from mnemon_server.engines.events.format.segment_reader import SegmentReader

OPEN_FILES_MAX = 128


class ReaderCache:
    """Open readers by file name. The most recently used ones stay open. Thread-safe."""

    def __init__(self, files: Files, epoch: bytes) -> None:
        """Opens nothing yet.

        Args:
            files: the folder of the segments.
            epoch: the digest of the vault to which the files must belong.
        """
        self._files = files
        self._epoch = epoch
        self._lock = threading.Lock()
        self._open: OrderedDict[str, SegmentReader] = OrderedDict()

    def get(self, name: str) -> SegmentReader:
        """The reader of a file. Do not close it: the file is closed when its last user releases it.

        Raises:
            StorageFailedError: the file does not exist, or the disk failed.
        """
        with self._lock:
            reader = self._open.get(name)
            if reader is None:
                reader = self._open[name] = SegmentReader(self._files, name, epoch=self._epoch)
                if len(self._open) > OPEN_FILES_MAX:
                    self._open.popitem(last=False)
            self._open.move_to_end(name)
            return reader

    def forget(self, name: str) -> None:
        """Releases a file that was replaced or removed."""
        with self._lock:
            self._open.pop(name, None)

    def close(self) -> None:
        """Releases all files."""
        with self._lock:
            self._open.clear()
