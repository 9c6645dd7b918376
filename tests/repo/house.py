"""The shape of the code in figures: python -m tests.repo.house [FIELD ...]

The rooms of a folder are the modules and packages directly in it. An arrow runs from a room to one that it imports.
A floor holds the rooms with the same longest way down, and an arrow that closes a cycle runs up. For a FIELD, such as
`persona`, the files that name it are counted, without tests and generated code.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

from tests.support.repository import ROOT, written_python

Graph = dict[str, set[str]]

SHIPPED = ("server", "clients/python")
FOLDERS = {
    "mnemon_server": "server",
    "mnemon_server.services": "server",
    "mnemon_server.engines": "server",
    "mnemon": "clients/python",
}
"""What is looked at from above, and where it lies."""


@dataclass(frozen=True)
class Shape:
    """The rooms of a folder and the arrows between them."""

    rooms: int
    floors: int
    arrows: int
    up: tuple[tuple[str, str], ...]
    """The arrows that close a circle."""


def shape(package: str) -> Shape:
    """How the rooms of a package import each other."""
    graph = arrows(package)
    up = []
    while circle := _circle(graph):
        # In a cycle, the arrow into the room that most others need is the one that runs up.
        needed = Counter(target for targets in graph.values() for target in targets)
        source, target = min(pairwise(circle), key=lambda arrow: needed[arrow[1]])
        graph[source].remove(target)
        up.append((source, target))
    depth: dict[str, int] = {}
    for room in TopologicalSorter(graph).static_order():
        depth[room] = 1 + max((depth[target] for target in graph[room]), default=0)
    count = sum(map(len, graph.values())) + len(up)
    return Shape(len(graph), max(depth.values()), count, tuple(up))


def arrows(package: str) -> Graph:
    """The rooms of a package, and the other rooms that each imports when it is loaded."""
    root = ROOT / FOLDERS[package] / Path(*package.split("."))
    graph: Graph = {}
    for file in written_python(str(root.relative_to(ROOT))):
        inside = file.relative_to(root).with_suffix("").parts
        if inside != ("__init__",):
            room = graph.setdefault(inside[0], set())
            room |= {name for name in _imported(file, package) if name != inside[0]}
    return {room: targets & graph.keys() for room, targets in graph.items()}


def files_that_name(field: str) -> list[Path]:
    """Protos and shipped code, without generated files, that name the field."""
    word = re.compile(rf"\b{re.escape(field)}\b")
    protos = sorted((ROOT / "protos").rglob("*.proto"))
    return [file for file in (*written_python(*SHIPPED), *protos) if word.search(file.read_text(encoding="utf-8"))]


def modules_per_folder() -> Counter[str]:
    """How many modules each folder of the shipped code holds."""
    return Counter(str(file.parent.relative_to(ROOT)) for file in written_python(*SHIPPED))


def written_lines() -> Mapping[str, int]:
    """The number of hand-written lines in the server and the client."""
    return {part: sum(len(file.read_text("utf-8").splitlines()) for file in written_python(part)) for part in SHIPPED}


def _circle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # The cycle is a list in which each room needs the one before it.
        return list(reversed(error.args[1]))
    return []


def _imported(file: Path, package: str) -> Iterator[str]:
    """The rooms of the package that a file imports, except for type checking only."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in _loaded(tree.body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith(f"{package}."):
                yield name.removeprefix(f"{package}.").split(".")[0]


def _loaded(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            inner = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt | ast.ExceptHandler))
            yield from _loaded([part for part in inner if isinstance(part, ast.stmt)])
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.ExceptHandler):
                    yield from _loaded(part.body)


def _report(fields: list[str]) -> Iterator[str]:
    for package in FOLDERS:
        seen = shape(package)
        up = "".join(f"; {source} -> {target}" for source, target in seen.up)
        yield f"{package}: {seen.rooms} rooms, {seen.floors} floors, {seen.arrows} arrows, {len(seen.up)} up{up}"
    yield "most modules in a folder: " + ", ".join(f"{name} {n}" for name, n in modules_per_folder().most_common(5))
    lines = written_lines()
    yield "written lines: " + ", ".join(f"{part} {n:,}" for part, n in lines.items()) + f", {sum(lines.values()):,}"
    for field in fields:
        found = files_that_name(field)
        yield f"{field}: {len(found)} files"
        yield from (f"  {file.relative_to(ROOT)}" for file in found)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in _report(sys.argv[1:]))
