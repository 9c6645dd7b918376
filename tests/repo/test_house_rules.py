"""The rules of CONTRIBUTING.md that a machine can check."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.repository import ROOT, tracked_files, written_python

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 30
PARAMETERS_MAX = 7
SHIPPED = ("server", "clients")

# Joined from halves, so that this file does not match itself.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK|NotImplemented" r"Error)\b")
PATH_OF_ONE_MACHINE = re.compile(r"(?<![\w.~*-])/(?:home|root|Users|work|farm|opt)/[a-z.]")

MODULES_THAT_RUN_DATA = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
CALLS_THAT_RUN_DATA = {"eval", "exec", "yaml.load", "torch.load", "os.system"}
ARGUMENTS_THAT_RUN_DATA = {"allow_pickle", "shell", "trust_remote_code"}


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@dataclass(frozen=True)
class _Seen:
    """What the rules ask of a Python file."""

    function_lines: dict[str, int]
    constructor_parameters: dict[str, int]
    runs_data: tuple[tuple[int, str], ...]
    """Lines of shipped code that execute data, and how."""


@cache
def _seen(file: Path) -> _Seen:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions, constructors = dict[str, int](), dict[str, int]()
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            functions[f"{_name(file)}:{node.lineno} {node.name}"] = node.end_lineno - node.lineno + 1
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    count = len(method.args.args) - 1 + len(method.args.kwonlyargs)
                    constructors[f"{_name(file)} {node.name}"] = count
    is_shipped = file.relative_to(ROOT).parts[0] in SHIPPED
    return _Seen(functions, constructors, tuple(_ways_to_run_data(ast.walk(tree))) if is_shipped else ())


def _statements(within: ast.AST) -> Iterator[ast.AST]:
    """All statements, without looking into their expressions, which are most of a tree."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(within, part, ()):
            yield node
            yield from _statements(node)


def _lines_that_match(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [
        f"{_name(file)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_is_too_long() -> None:
    lengths = {_name(file): len(file.read_text(encoding="utf-8").splitlines()) for file in written_python()}
    assert len(lengths) > 20
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_folder_holds_too_many_modules() -> None:
    folders = Counter(_name(file.parent) for file in written_python(*SHIPPED))
    assert len(folders) > 20
    assert {folder: count for folder, count in folders.items() if count > FOLDER_MODULES_MAX} == {}


def test_no_function_is_too_long() -> None:
    lengths = {name: lines for file in written_python() for name, lines in _seen(file).function_lines.items()}
    assert len(lengths) > 1_000
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_no_constructor_of_the_server_takes_more_than_a_reader_can_hold() -> None:
    """Settings travel as one value per group."""
    files = written_python("server")
    constructors = {name: count for file in files for name, count in _seen(file).constructor_parameters.items()}
    assert len(constructors) > 100
    assert {name: count for name, count in constructors.items() if count > PARAMETERS_MAX} == {}


def test_no_work_is_marked_as_unfinished() -> None:
    others = tracked_files("*.proto", "*.md", "Makefile", "docker", ".ci")
    assert _lines_that_match(UNFINISHED, written_python() + others) == []


def test_no_path_of_one_machine_is_in_the_code() -> None:
    assert _lines_that_match(PATH_OF_ONE_MACHINE, tracked_files()) == []


def test_the_shipped_code_never_executes_data() -> None:
    """No unpickling, no eval, no shell, no code that comes with a model."""
    shipped = written_python(*SHIPPED)
    assert len(shipped) > 20
    assert [f"{_name(file)}:{line}: {what}" for file in shipped for line, what in _seen(file).runs_data] == []


def test_ways_to_execute_data_are_detected() -> None:
    ways = "import pickle\nfrom marshal import loads\neval('1')\nyaml.load(f)\nnumpy.load(f, allow_pickle=True)\n"
    assert [line for line, _ in sorted(_ways_to_run_data(ast.walk(ast.parse(ways))))] == [1, 2, 3, 4, 5]
    harmless = "subprocess.run(c, shell=False)\nnumpy.load(f)\nre.compile('eval')\n"
    assert [*_ways_to_run_data(ast.walk(ast.parse(harmless)))] == []


def _ways_to_run_data(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names} & MODULES_THAT_RUN_DATA
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").split(".")[0]} & MODULES_THAT_RUN_DATA
        elif isinstance(node, ast.Call):
            said = {word.arg or "" for word in node.keywords if not _is_false(word.value)}
            names = ({_called(node.func)} & CALLS_THAT_RUN_DATA) | (said & ARGUMENTS_THAT_RUN_DATA)
        else:
            continue
        for name in names:
            yield node.lineno, name


def _called(function: ast.expr) -> str:
    """The name, if it is one word or two."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
        case _:
            return ""


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
