"""The coverage of the server by the tests, measured by SlipCover: `pytest -p tests.support.coverage`.

SlipCover removes its probes from lines that were reached, while a tracer keeps checking. A tracer doubles the time of
these tests, and SlipCover adds a tenth. Each process writes a file into build/coverage, and
`python -m slipcover --merge` joins them. Processes that tests start are not measured.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from slipcover import FileMatcher, Slipcover
from slipcover.importer import SlipcoverMetaPathFinder

from tests.support.repository import ROOT

PACKAGE = "mnemon_server"
SOURCE = str(ROOT / "server" / PACKAGE)
FOLDER = ROOT / "build" / "coverage"


class _Finder(SlipcoverMetaPathFinder):
    """Leaves all other modules to pytest, which rewrites their assertions."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return super().find_spec(fullname, path, target) if fullname.partition(".")[0] == PACKAGE else None


if PACKAGE in sys.modules:
    raise RuntimeError(f"{PACKAGE} was imported before it could be measured")
_measured = Slipcover(branch=True, source=[SOURCE], exclude_also=[r"class .*\(Protocol\):"])
sys.meta_path.insert(0, _Finder(_measured, FileMatcher(sources=[SOURCE])))


def pytest_sessionfinish() -> None:
    """Writes what this process covered."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (FOLDER / f"{name}.json").write_text(json.dumps(_measured.get_coverage()), encoding="utf-8")
