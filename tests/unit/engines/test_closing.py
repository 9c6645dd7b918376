"""A thread that is closed at the worst moment: between its question whether to go on, and its wait for work."""

import threading
from pathlib import Path

import pytest

from tests.support.vaults import open_vault

TIMEOUT_S = 60.0


def test_a_thread_that_is_about_to_wait_hears_a_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear, opened, closing = threading.Event.clear, threading.Event(), threading.Event()
    closers: list[threading.Thread] = []

    def clear_beside_a_close(event: threading.Event) -> None:
        clear(event)
        if threading.current_thread().name == "timeline-text" and not closers:
            opened.wait()
            closers.append(threading.Thread(target=vault.close, daemon=True))
            closers[0].start()
            # Until the close wakes the thread, which then forgets that.
            event.wait()
            clear(event)
            closing.set()

    monkeypatch.setattr(threading.Event, "clear", clear_beside_a_close)
    vault = open_vault(tmp_path)
    opened.set()
    assert closing.wait(TIMEOUT_S)
    closers[0].join(TIMEOUT_S)
    assert not closers[0].is_alive()
