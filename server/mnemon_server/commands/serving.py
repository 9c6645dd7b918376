"""Runs the server in this process: event loop, signals, and start-up messages."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import structlog
from mnemon.shared.terminal import echo

from mnemon_server import app
from mnemon_server.assembly.settings import backend_of
from mnemon_server.config.loading import LoadedSettings
from mnemon_server.config.settings import Settings
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.logs import configure_logging

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SWITCH_INTERVAL_S = 0.0002
"""Interval after which a computing thread releases the interpreter lock. With Python's default of 5 ms, the event loop,
and so every caller, would wait that long each time, and once more for each further thread. A call waits about ten
times. Below 0.2 ms, the switches themselves take what the shorter waits save.
"""

_M_ARENA_MAX, _HEAPS_MAX = -8, 2
"""The `mallopt` option from glibc's malloc.h, and the number of heaps that the server's threads share."""


def run_server(loaded: LoadedSettings) -> None:
    """Serves until a signal arrives; returns once everything is closed.

    Raises:
        ConfigurationError: the server cannot start with this configuration.
        EmbeddingError: the model is not available. The message says how to get it.
    """
    settings = loaded.settings
    configure_logging(log_format=settings.log_format, level=settings.log_level)
    for name in loaded.unknown_variables:
        structlog.get_logger().warning("environment variable is not a setting", name=name)
    prepare_process()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = _Stop()
    interrupt_others(allowed=False)
    try:
        async with app.running_server(settings, report=_print_line) as server:
            interrupt_others(allowed=True)
            leave_out_of_collections()
            _print_line(
                f"mnemon-server is serving on {server.address}: backend {backend_of(settings, DOCUMENTS)}, "
                f"model {settings.embedding_model}, data in {settings.data_dir.absolute()}"
            )
            if server.http_address:
                scheme = "https" if settings.tls_certificate else "http"
                _print_line(f"mnemon-server answers HTTP on {scheme}://{server.http_address}")
            if server.metrics_address:
                _print_line(f"mnemon-server shows metrics on {server.metrics_address}/metrics")
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not stop.requested:
            raise


def interrupt_others(*, allowed: bool) -> None:
    """Whether this thread, and those that it starts, may interrupt a running thread when they wake up.

    The threads of the start may not. Otherwise those of gRPC interrupt the event loop six times in each call, and the
    writer interrupts it only to wait for the interpreter lock that the loop holds. On a free core, they run at once.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # A sandbox may forbid it.
            os.sched_setscheduler(0, os.SCHED_OTHER if allowed else os.SCHED_BATCH, os.sched_param(0))


def prepare_process() -> None:
    """Shortens the switch interval of the interpreter lock, and makes threads share heaps."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # By default there are up to eight per core, and each holds on to the memory of large answers.
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError, TypeError):  # Other C libraries lack it.
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS_MAX)


def leave_out_of_collections() -> None:
    """Exempts the objects made so far, which live until the end: scanning them would stop every thread for 80 ms."""
    gc.collect()
    gc.freeze()


class _Stop:
    """The first signal cancels the task that created this object. A second one ends the process immediately."""

    def __init__(self) -> None:
        self.requested = False
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            # A shell ignores SIGINT for background jobs of a script. Ctrl-C is meant for the script then.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self.requested:
            _print_line(f"mnemon-server: {number.name} again, exiting immediately")
            os._exit(128 + number)
        self.requested = True
        if self._task is not None:
            self._task.cancel()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of the server's event loop; None for the standard loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _print_line(sentence: str) -> None:
    echo(sentence, err=True)
    sys.stderr.flush()
