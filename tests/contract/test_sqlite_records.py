"""The SQLite record engine keeps the contract, with its vectors in memory and on disk, and survives what disks do."""

from pathlib import Path

from mnemon_server.engines.base import RecordEngine
from mnemon_server.engines.sqlite import SQLiteRecordEngine

from tests.contract.record_engine import DIMENSION, DurableRecordEngineContract, ManualClock


class TestSQLiteRecordEngine(DurableRecordEngineContract):
    def open_engine(self, folder: Path, clock: ManualClock) -> RecordEngine:
        return SQLiteRecordEngine(folder, model_identity="test/1", dimension=DIMENSION, clock=clock)


class TestSQLiteRecordEngineScanningTheFile(DurableRecordEngineContract):
    """Vectors beyond the bound of the memory are read from the file: here, all but the first."""

    def open_engine(self, folder: Path, clock: ManualClock) -> RecordEngine:
        return SQLiteRecordEngine(
            folder, model_identity="test/1", dimension=DIMENSION, clock=clock, vector_cache_bytes_max=4 * DIMENSION
        )
