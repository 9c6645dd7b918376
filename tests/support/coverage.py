"""The coverage of the server by the tests, measured by SlipCover: `pytest -p tests.support.coverage`.

SlipCover removes its probes from lines that were reached, while a tracer keeps checking. A tracer doubles the time of
these tests, and SlipCover adds a tenth. To mark the branches of all modules takes ten seconds in each process, and so
marked code is kept in build/marked. Each process writes a file into build/coverage, and `python -m slipcover --merge`
joins them. Processes that tests start are not measured.
"""

import ast
import hashlib
import json
import marshal
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from slipcover import FileMatcher, Slipcover, __version__
from slipcover.branch import preinstrument
from slipcover.importer import SlipcoverLoader, SlipcoverMetaPathFinder

from tests.support.repository import ROOT

PACKAGE = "mnemon_server"
SOURCE = str(ROOT / "server" / PACKAGE)
FOLDER = ROOT / "build" / "coverage"
MARKED = ROOT / "build" / "marked"
PASSES_BEFORE_REMOVAL = 1_000
"""How often a reached probe is passed until all reached ones are removed, which takes a walk through all functions."""


class _Loader(SlipcoverLoader):
    """Runs a module with its lines and branches measured."""

    def exec_module(self, module: ModuleType) -> None:
        code = _marked(self.origin)
        self.sci.register_module(module)
        exec(self.sci.instrument(code), module.__dict__)  # noqa: S102 - the server's own code


def _marked(source: Path) -> CodeType:
    """The code of a module with marks at its branches."""
    content = source.read_bytes()
    key = hashlib.sha256(f"{sys.version} {__version__} {source} ".encode() + content).digest()
    kept = MARKED / f"{'.'.join(source.relative_to(SOURCE).with_suffix('').parts)}.marshal"
    if not kept.exists() or (found := marshal.loads(kept.read_bytes()))[0] != key:  # noqa: S302 - written below
        found = key, compile(preinstrument(ast.parse(content)), str(source), "exec")
        MARKED.mkdir(parents=True, exist_ok=True)
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(marshal.dumps(found))
        own.replace(kept)
    code: CodeType = found[1]
    return code


class _Finder(SlipcoverMetaPathFinder):
    """Leaves all other modules to pytest, which rewrites their assertions."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target) if fullname.partition(".")[0] == PACKAGE else None
        if spec and isinstance(loader := spec.loader, SlipcoverLoader):
            spec.loader = _Loader(loader.sci, loader.orig_loader, loader.origin)
        return spec


if PACKAGE in sys.modules:
    raise RuntimeError(f"{PACKAGE} was imported before it could be measured")
_measured = Slipcover(
    branch=True, source=[SOURCE], exclude_also=[r"class .*\(Protocol\):"], d_miss_threshold=PASSES_BEFORE_REMOVAL
)
sys.meta_path.insert(0, _Finder(_measured, FileMatcher(sources=[SOURCE])))


def pytest_sessionfinish() -> None:
    """Writes what this process covered."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (FOLDER / f"{name}.json").write_text(json.dumps(_measured.get_coverage()), encoding="utf-8")
