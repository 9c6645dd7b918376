"""What holds for every test."""

import pytest
from hypothesis import settings
from mnemon_server.logs import configure_logging

# The same examples every time, and none fails for being slow: how fast a machine is, is not what is asserted.
settings.register_profile("mnemon", derandomize=True, deadline=None)
settings.load_profile("mnemon")


@pytest.fixture(autouse=True)
def _quiet_log() -> None:
    """A failing test's output is about the failure; tests of the log configure it themselves."""
    configure_logging(log_format="json", level="error")
