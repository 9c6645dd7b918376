"""The reference record engine keeps the contract."""

from pathlib import Path

from mnemon_server.engines.base import RecordEngine
from mnemon_server.engines.in_memory import InMemoryRecordEngine

from tests.contract.record_engine import ManualClock, RecordEngineContract


class TestInMemoryRecordEngine(RecordEngineContract):
    def open_engine(self, folder: Path, clock: ManualClock) -> RecordEngine:
        return InMemoryRecordEngine(clock=clock)
