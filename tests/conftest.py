"""Settings and fixtures for all tests."""

import gc
import multiprocessing.util
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from mnemon_server.logs import configure_logging

from tests.support.chroma_server import ChromaServer

# The same examples every time, and none fails for being slow: the speed of the machine is not what is tested.
settings.register_profile("mnemon", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mnemon")

# A shell that runs the tests in the background ignores SIGINT, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Collecting makes a million objects that stay. The collector would look through them again and again: a quarter of the
# time that collecting takes, and later half a second at a time, amid tests.
gc.disable()

# The longest modules go first, so that no process is left alone with one of them at the end; `--durations` names them.
# The ones that mostly wait alternate with the ones that compute.
LONGEST = (
    "test_verify_isolation",
    "test_watching",
    "test_tokens",
    "test_readme",
    "test_damaged_vaults",
    "test_process",
    "test_semantic_scenarios",
    "test_embedded",
    "test_embedding_endpoint",
    "test_sqlite_records",
    "test_mcp_server",
    "test_knowledge_stores",
    "test_client_bulk",
    "test_quantized_vectors",
    "test_python_client",
    "test_extraction",
    "test_sqlite_durability",
    "test_archive_round_trip",
    "test_timeline_text",
    "test_backups",
    "test_outgoing",
    "test_multilingual_model",
    "test_client_watch",
    "test_model_opening",
    "test_tool_call_fuzzing",
    "test_tenants",
    "test_archive_imports",
    "test_judge",
    "test_universal_model",
    "test_segments",
    "test_coverage",
    "test_refused_paths",
    "test_sqlite_timeline",
    "test_timeline_health",
    "test_semantic_search",
    "test_transport_limits",
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


@pytest.fixture(autouse=True, scope="session")
def _folder_of_processes() -> None:
    """Makes the folder of the fork server's socket, which its first copy would make inside a test's own folder."""
    multiprocessing.util.get_temp_dir()


@pytest.fixture(scope="session")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    """One Chroma server for all tests that leave it running. Each test has separate collections."""
    with ChromaServer(tmp_path_factory.mktemp("chroma") / "data") as server:
        yield server
