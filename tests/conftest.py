"""Settings and fixtures for all tests."""

import gc
import signal

import pytest
from hypothesis import settings
from mnemon_server.logs import configure_logging

# The same examples every time, and none fails for being slow: the speed of the machine is not what is tested.
settings.register_profile("mnemon", derandomize=True, deadline=None)
settings.load_profile("mnemon")

# A shell that runs the tests in the background ignores SIGINT, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Collecting makes a million objects that stay. The collector would look through them again and again: a quarter of the
# time that collecting takes, and later half a second at a time, amid tests.
gc.disable()

# The longest modules go first, so that no process is left alone with one of them at the end; `--durations` names them.
LONGEST = (
    "test_chroma_damage",
    "test_chroma_process",
    "test_chroma_index",
    "test_knowledge_stores",
    "test_mcp_server",
    "test_process",
    "test_index_lifecycle",
    "test_crashes",
    "test_graph_snapshots",
    "test_timeline_damage",
    "test_segment_damage",
    "test_timeline_compaction",
    "test_timeline_recovery",
    "test_model_opening",
    "test_onnx_embedder",
    "test_large_memory_search",
    "test_semantic_search",
    "test_semantic_lifecycle",
    "test_client_command",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _quiet_log() -> None:
    """Keeps the log quiet, so that the output of a failing test is about the failure. Tests of the log configure it."""
    configure_logging(log_format="json", level="error")
