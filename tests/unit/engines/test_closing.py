"""Closing a thread at the worst moment: after it has checked whether to stop, and before it waits for work."""

import threading
from pathlib import Path

import pytest

from tests.support.vaults import open_vault

TIMEOUT_S = 60.0


def test_a_close_is_not_missed_by_a_thread_about_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear, opened, closing = threading.Event.clear, threading.Event(), threading.Event()
    closers: list[threading.Thread] = []

    def clear_beside_a_close(event: threading.Event) -> None:
        clear(event)
        if threading.current_thread().name == "timeline-text" and not closers:
            opened.wait()
            closers.append(threading.Thread(target=vault.close, daemon=True))
            closers[0].start()
            # Wait until the close has woken the thread, and then discard that signal.
            event.wait()
            clear(event)
            closing.set()

    monkeypatch.setattr(threading.Event, "clear", clear_beside_a_close)
    vault = open_vault(tmp_path)
    opened.set()
    assert closing.wait(TIMEOUT_S)
    closers[0].join(TIMEOUT_S)
    assert not closers[0].is_alive()
