"""Removes each check of the server's access control in turn, and runs the tests that must notice.

    python -m tests.support.mutation [--only TEXT ...] [--sample N --seed SEED] [--jobs N] [--list]

A mutant is a copy of `mnemon_server` with one change: a condition that is always true or always false, one side of an
`and` or `or` left out, a `raise` or the call of a check left out, a filter of a caller's bounds left out. The tests of
the changed module run against it, and at least one of them must fail.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import Progress

from tests.support.mutation_scope import EQUIVALENT, TESTS
from tests.support.repository import ROOT

PACKAGE = ROOT / "server" / "mnemon_server"
TEST_TIMEOUT_S = 600
_console = Console(stderr=True)
_CHECK = re.compile(r"_?(require|check|forget_idle)")
_FILTERS = {"where", "restricted", "_own", "owned", "_owned", "_request"}
"""Functions that keep a caller within its bounds; left out, their argument stays as it is."""
Node = ast.expr | ast.stmt | ast.keyword
_GUARDS = {"visible", "owner"}
"""Arguments that do the same."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    """Its path below the package."""
    number: int
    """Which change of the module it is."""
    function: str
    line: int
    before: str
    after: str
    """The source of what changes; empty if it is left out."""

    @property
    def name(self) -> str:
        """What it changes, in one line that stays the same while other lines are edited."""
        return f"{self.module} {self.function}: {self.before} -> {self.after or 'nothing'}"


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module."""
    tree = ast.parse((PACKAGE / module).read_text())
    return [
        Mutant(
            module, i, function, node.lineno, _one_line(ast.unparse(node)), _one_line(ast.unparse(new)) if new else ""
        )
        for i, (function, node, new) in enumerate(_changes(tree))
    ]


def mutated_source(mutant: Mutant) -> str:
    """The source of its module with the change."""
    tree = ast.parse((PACKAGE / mutant.module).read_text())
    _, node, new = next(change for i, change in enumerate(_changes(tree)) if i == mutant.number)
    _Replace(node, new).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


def write_package(folder: Path, mutant: Mutant | None) -> None:
    """Copies the package, with the change, to where PYTHONPATH finds it first: `folder`."""
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("*.tmp"))
    if mutant:
        (folder / PACKAGE.name / mutant.module).write_text(mutated_source(mutant))


def environment_of(folder: Path) -> dict[str, str]:
    """The environment in which Python imports the package from this folder."""
    paths = [str(folder), str(ROOT / "clients" / "python"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class _Replace(ast.NodeTransformer):
    """Puts another node in the place of one; None leaves it out, and `pass` stands for a statement."""

    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST | None:
        if node is not self._old:
            return self.generic_visit(node)
        return ast.Pass() if self._new is None and isinstance(node, ast.stmt) else self._new


def _changes(tree: ast.Module) -> Iterator[tuple[str, Node, ast.AST | None]]:
    """Every change: the function that it is in, the node, and what replaces it."""
    for function, node in _functions(tree, ""):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield from ((function, test, ast.Constant(value)) for value in (True, False) if not _is_constant(test))
            case ast.comprehension(ifs=tests):
                yield from ((function, test, ast.Constant(True)) for test in tests)
            case ast.BoolOp(values=values):
                yield from ((function, node, _without(node, i)) for i in range(len(values)))
            case ast.Return(value=ast.Compare() as value):
                yield from ((function, value, ast.Constant(truth)) for truth in (True, False))
            case ast.Expr(value=ast.Call() | ast.Await() as value) if _CHECK.match(_called(value)):
                yield function, node, None
            case ast.Call(args=[first, *_]) if _called(node) in _FILTERS:
                yield function, node, first
            case ast.keyword(arg=str(name)) if name in _GUARDS and not isinstance(node.value, ast.Name):
                yield function, node, None
            case _:
                pass


def _functions(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node below one, with the name of the function or class that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(child, f"{name}.{child.name}" if name else child.name)
        else:
            yield name, child
            yield from _functions(child, name)


def _without(node: ast.BoolOp, i: int) -> ast.expr:
    rest = [*node.values[:i], *node.values[i + 1 :]]
    return rest[0] if len(rest) == 1 else ast.BoolOp(copy.copy(node.op), rest)


def _called(node: ast.expr) -> str:
    """The name of the function that is called."""
    match node:
        case ast.Await(value=value):
            return _called(value)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return ""


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or ast.unparse(node) == "TYPE_CHECKING"


def _one_line(source: str) -> str:
    return " ".join(source.split())


def outcome(mutant: Mutant | None, tests: Sequence[str], folder: Path) -> str:
    """What the tests say: "caught", "survived", or the end of what they print if they could not run."""
    shutil.rmtree(folder, ignore_errors=True)
    write_package(folder, mutant)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "--timeout",
        "100",
        *tests,
    ]
    try:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=environment_of(folder),
            check=False,
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "caught"
    return {0: "survived", 1: "caught"}.get(ran.returncode) or f"not run: {ran.stdout[-2_000:]}{ran.stderr[-500:]}"


def run(mutants: Sequence[Mutant], jobs: int) -> list[tuple[Mutant, str]]:
    """The outcomes that are not "caught", with a progress bar."""
    with tempfile.TemporaryDirectory() as scratch:
        folders: SimpleQueue[Path] = SimpleQueue()
        for i in range(jobs):
            folders.put(Path(scratch) / str(i))

        def one(mutant: Mutant | None, tests: Sequence[str]) -> str:
            folder = folders.get()
            try:
                return outcome(mutant, tests, folder)
            finally:
                folders.put(folder)

        whole = sorted({test for each in mutants for test in TESTS[each.module]})
        if (said := one(None, whole)) != "survived":
            sys.exit(f"the tests fail without any change: {said}")
        missed: list[tuple[Mutant, str]] = []
        with ThreadPoolExecutor(jobs) as pool, Progress(console=_console) as bar:
            task = bar.add_task("Mutants", total=len(mutants))
            for mutant, said in zip(
                mutants, pool.map(lambda each: one(each, TESTS[each.module]), mutants), strict=True
            ):
                bar.advance(task)
                if said != "caught":
                    missed.append((mutant, said))
                    bar.print(f"{said}: line {mutant.line} of {mutant.name}", markup=False, soft_wrap=True)
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 1 if a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="only mutants whose name contains one of these texts")
    parser.add_argument("--sample", type=int, help="only so many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for the choice")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run nothing")
    options = parser.parse_args(arguments)
    found = [each for module in TESTS for each in mutants_of(module) if any(text in each.name for text in options.only)]
    unknown = EQUIVALENT.keys() - {each.name for module in TESTS for each in mutants_of(module)}
    if unknown:
        sys.exit("these are no mutants any more: " + "; ".join(sorted(unknown)))
    mutants = [each for each in found if each.name not in EQUIVALENT]
    if options.sample is not None:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    if options.list:
        sys.stdout.writelines(f"{each.name}\n" for each in mutants)
        return 0
    missed = run(mutants, options.jobs)
    caught, left_out = len(mutants) - len(missed), len(found) - len(mutants)
    sys.stdout.write(f"{caught} of {len(mutants)} mutants caught; {left_out} left out\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
