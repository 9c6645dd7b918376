"""Which lines of some modules each test reaches, in its own process and in programs that it starts.

`pytest -p tests.support.reached_plugin` writes it, with the variables of `environment`. A tracer makes tests twice as
slow.
"""

import atexit
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER, MODULES, OUTPUT, TEST = (f"MNEMON_REACHED_{name}" for name in ("FOLDER", "MODULES", "OUTPUT", "TEST"))
"""The folder of the package, paths below it that are joined by commas, the file for what is reached, and the test."""
_IN_PROGRAMS = "import tests.support.reached\n\ntests.support.reached.follow()\n"


@dataclass(frozen=True)
class Reached:
    """What one test reaches."""

    test: str
    """Its id, as pytest takes it."""
    seconds: float
    lines: frozenset[tuple[str, int]]
    """Modules and lines."""
    is_whole: bool
    """Whether it is known: a program that is killed does not tell."""

    def includes(self, module: str, lines: range) -> bool:
        """Whether it may reach one of the lines."""
        return not self.is_whole or any((module, line) in self.lines for line in lines)


def environment(folder: Path, modules: Sequence[str], output: Path) -> dict[str, str]:
    """What the plugin reads; `folder` is where Python finds the package first."""
    # Every program that a test starts imports this.
    (folder / "sitecustomize.py").write_text(_IN_PROGRAMS, encoding="utf-8")
    return {FOLDER: str(folder / "mnemon_server"), MODULES: ",".join(modules), OUTPUT: str(output)}


def read(output: Path) -> list[Reached]:
    """What the plugin has written, the quickest tests first."""
    lines: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    seconds: defaultdict[str, float] = defaultdict(float)
    running: defaultdict[str, int] = defaultdict(int)
    for row in map(json.loads, output.read_text(encoding="utf-8").splitlines()):
        test = row["test"]
        lines[test].update((module, line) for module, line in row.get("lines", ()))
        seconds[test] += row.get("seconds", 0.0)
        running[test] += row["programs"]
    found = [Reached(test, seconds[test], frozenset(lines[test]), not running[test]) for test in seconds]
    return sorted(found, key=lambda each: each.seconds)


class Tracer:
    """Notes the lines of the modules that run, in all threads that begin after it."""

    def __init__(self) -> None:
        folder = Path(os.environ[FOLDER])
        self._modules = {str(folder / name): name for name in os.environ[MODULES].split(",")}
        self._lines: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Starts again with no lines."""
        self._lines = set()
        threading.settrace(self._entered)
        sys.settrace(self._entered)

    def stop(self, **others: Any) -> None:
        """Writes what was reached for the current test, with other facts."""
        sys.settrace(None)
        write(lines=sorted(self._lines), **others)

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._reached if frame.f_code.co_filename in self._modules else None

    def _reached(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._lines.add((self._modules[frame.f_code.co_filename], frame.f_lineno))
        return self._reached


def write(**facts: Any) -> None:
    """Adds a row about the current test."""
    with Path(os.environ[OUTPUT]).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps({'test': os.environ[TEST], **facts})}\n")


def follow() -> None:
    """Writes what this program reaches, which a test has started; it counts as running until it has ended by itself."""
    if TEST in os.environ:
        tracer = Tracer()
        write(programs=1)
        tracer.start()
        atexit.register(tracer.stop, programs=-1)
