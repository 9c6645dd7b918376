"""What holds for every test."""

import pytest
from mnemon_server.logs import configure_logging


@pytest.fixture(autouse=True)
def _quiet_log() -> None:
    """A failing test's output is about the failure; tests of the log configure it themselves."""
    configure_logging(log_format="json", level="error")
