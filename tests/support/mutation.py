"""Removes each check of the server's access control in turn, and runs the tests that must notice.

    python -m tests.support.mutation [--only TEXT ...] [--sample N --seed SEED] [--jobs N]
                                   [--reached FILE] [--list]

A mutant is a copy of `mnemon_server` with one change: a condition that is always true or always false, one side of an
`and` or `or` left out, a `raise` or the call of a check left out, a filter of a caller's bounds left out. Those tests
of the changed module that reach the changed line run against it, and at least one of them must fail.
"""

import argparse
import ast
import copy
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pytest
from rich.console import Console
from rich.progress import Progress

from tests.support.mutation_scope import EQUIVALENT, TESTS
from tests.support.reached import Reached, read
from tests.support.reached import environment as reached_environment
from tests.support.repository import ROOT

PACKAGE = ROOT / "server" / "mnemon_server"
TEST_TIMEOUT_S = 300
"""For a test that is traced."""
TIMEOUT_S, TIMEOUT_FACTOR = 20, 5
"""A test of a mutant may take so many seconds, and so many times as long as without the change."""
_console = Console(stderr=True)
_FORKS = multiprocessing.get_context("forkserver")
_PRELOADED = ["pytest", "grpc.aio", "mnemon", "numpy", "jwt"]
"""What takes long to import and is no part of the package: each run of the tests begins with it. pytest itself must
import its plugins, and what they import.
"""
_SAID = {pytest.ExitCode.OK: "survived", pytest.ExitCode.TESTS_FAILED: "caught"}
_NOT_IMPORTED = ("ERROR collecting", "ImportError while loading conftest")
"""What pytest prints if a module of tests cannot be imported. It can be without the change, so the change is caught."""
_EXIT = 64
"""Is added to what pytest returns: a process that fails by itself ends with 1."""
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
    lines: range
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
            module,
            i,
            function,
            range(node.lineno, (node.end_lineno or node.lineno) + 1),
            _one_line(ast.unparse(node)),
            _one_line(ast.unparse(new)) if new else "",
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


def outcome(
    mutant: Mutant | None,
    tests: Sequence[str],
    folder: Path,
    *,
    timeout_s: float = TEST_TIMEOUT_S,
    traced: tuple[Sequence[str], Path] | None = None,
) -> str:
    """What the tests say: "caught", "survived", or the end of what they print if they could not run.

    Call it in a process that forks nothing else: of the package, nothing may be imported in its fork server.

    Args:
        mutant: the change; None: none.
        tests: files, or ids of tests.
        folder: where the changed package is written; what is there is removed.
        timeout_s: seconds that one test may take.
        traced: modules, and the file for what the tests reach of them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    write_package(folder, mutant)
    words = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", "--timeout", f"{timeout_s:.0f}"]
    environ = environment_of(folder)
    if traced:
        words += ["-p", "tests.support.reached_plugin"]
        environ |= reached_environment(folder, *traced)
    output = folder / "output"
    _FORKS.set_forkserver_preload(_PRELOADED)
    process = _FORKS.Process(target=_run_pytest, args=([*words, *tests], environ, output))
    process.start()
    process.join()
    said, printed = _SAID.get((process.exitcode or 0) - _EXIT), output.read_text(errors="replace")
    if mutant and not said and any(each in printed for each in _NOT_IMPORTED):
        said = "caught"
    return said if said and (mutant or said == "survived") else f"not run: {printed[-2_500:]}"


def _run_pytest(words: Sequence[str], environ: Mapping[str, str], output: Path) -> None:
    """Runs in a process of its own, in which nothing of the package was imported yet."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(ROOT)
    sys.path[:0] = environ["PYTHONPATH"].split(os.pathsep)
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(_EXIT + pytest.main([*words]))


class Trial:
    """Runs tests on changed copies of the package."""

    def __init__(self, scratch: Path, jobs: int) -> None:
        self._reached = scratch / "reached"
        self._folders: SimpleQueue[Path] = SimpleQueue()
        for i in range(jobs):
            self._folders.put(scratch / str(i))

    def reached(self, modules: Sequence[str], kept: Path | None) -> list[Reached]:
        """What the tests of these modules reach of them. Ends the program if a test fails without any change.

        Args:
            modules: paths below the package.
            kept: a file that says so if it exists, and otherwise will.
        """
        output = kept or self._reached
        if not output.exists():
            whole = sorted({test for module in modules for test in TESTS[module]})
            with self._folder() as folder:
                said = outcome(None, whole, folder, traced=(modules, output))
            if said != "survived":
                output.unlink(missing_ok=True)
                sys.exit(f"the tests fail without any change, or were {said}")
        return read(output)

    def outcome(self, mutant: Mutant, reached: Sequence[Reached]) -> str:
        """What the tests say: "caught", "survived", or the end of what they print if they could not run."""
        files = TESTS[mutant.module]
        tests = [each for each in reached if each.test.startswith(files) and each.includes(mutant.module, mutant.lines)]
        # Those with servers take long to import, and few mutants need them.
        for stage in (False, True):
            chosen = [each for each in tests if each.test.startswith("tests/e2e") is stage]
            if chosen:
                timeout_s = TIMEOUT_S + TIMEOUT_FACTOR * chosen[-1].seconds
                with self._folder() as folder:
                    said = outcome(mutant, [each.test for each in chosen], folder, timeout_s=timeout_s)
                if said != "survived":
                    return said
        return "survived" if tests else "no test reaches it"

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = self._folders.get()
        try:
            yield folder
        finally:
            self._folders.put(folder)


def run(mutants: Sequence[Mutant], jobs: int, kept: Path | None) -> list[tuple[Mutant, str]]:
    """The outcomes that are not "caught", with a progress bar."""
    with tempfile.TemporaryDirectory() as scratch:
        trial = Trial(Path(scratch), jobs)
        reached = trial.reached([*dict.fromkeys(each.module for each in mutants)] if kept is None else [*TESTS], kept)
        missed: list[tuple[Mutant, str]] = []
        with ThreadPoolExecutor(jobs) as pool, Progress(console=_console) as bar:
            task = bar.add_task("Mutants", total=len(mutants))
            for mutant, said in zip(mutants, pool.map(lambda each: trial.outcome(each, reached), mutants), strict=True):
                bar.advance(task)
                if said != "caught":
                    missed.append((mutant, said))
                    bar.print(f"{said}: line {mutant.lines.start} of {mutant.name}", markup=False, soft_wrap=True)
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 1 if a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="only mutants whose name contains one of these texts")
    parser.add_argument("--sample", type=int, help="only so many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for the choice")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--reached", type=Path, help="a file that keeps which lines tests reach, for further runs")
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
    missed = run(mutants, options.jobs, options.reached)
    caught, left_out = len(mutants) - len(missed), len(found) - len(mutants)
    sys.stdout.write(f"{caught} of {len(mutants)} mutants caught; {left_out} left out\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
