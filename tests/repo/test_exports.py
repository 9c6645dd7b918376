"""The Python client's façade is complete, and importing it stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import mnemon
import pytest
from mnemon.shared import errors as _errors

_HEAVY = {
    "numpy",
    "click",
    "rich",
    "chromadb",
    "onnxruntime",
    "mnemon_server",
    "torch",
    "langgraph",
    "mcp",
    "pydantic",
}
_ERRORS = {name for name, each in vars(_errors).items() if getattr(each, "__module__", "") == _errors.__name__}
_SOURCE = Path(mnemon.__file__).with_name("_facade.py")


def test_all_names_what_the_facade_imports() -> None:
    imported = {
        alias.asname or alias.name
        for node in ast.parse(_SOURCE.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert set(mnemon.__all__) == imported | _ERRORS
    assert len(set(mnemon.__all__)) == len(mnemon.__all__)


def test_every_exported_name_exists() -> None:
    assert [name for name in mnemon.__all__ if getattr(mnemon, name, None) is None] == []


def test_every_value_and_error_is_exported() -> None:
    public = {
        node.name
        for module in (*(_SOURCE.parent / "_values").glob("*.py"), _SOURCE.parent / "shared/errors.py")
        for node in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }

    parts_of_filters = {"Operator", "Condition", "AllOf", "AnyOf", "Negation"}
    assert public - set(mnemon.__all__) == {"Answer", "Items", "JsonValue", *parts_of_filters}


def test_the_package_declares_that_it_is_typed() -> None:
    assert (_SOURCE.parent / "py.typed").exists()


def test_importing_the_client_loads_nothing_heavy() -> None:
    script = "import sys; from mnemon import *; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert "mnemon" in loaded
    assert loaded & _HEAVY == set()


def test_the_stubs_load_no_client() -> None:
    script = "import sys; from mnemon.v1 import memory_pb2; print(*(name for name in sys.modules if '_async' in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "mnemon" not in done.stdout


def test_dir_lists_what_is_exported_and_nothing_else_exists() -> None:
    script = "import mnemon; names = dir(mnemon); assert {*mnemon.__all__, '__version__'} <= {*names}; mnemon.Server"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1].startswith("AttributeError: module 'mnemon' has no attribute 'Server'")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_the_command_says_which_one_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from mnemon.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "pip install 'mnemon-client[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("missing", "script", "extra"),
    [
        ("mcp", "sys.argv = ['mnemon', 'mcp']; from mnemon.__main__ import main; main()", "mnemon-client[mcp]"),
        ("langgraph", "import mnemon.langgraph", "mnemon-client[langgraph]"),
        ("langchain_core", "import mnemon.langchain", "mnemon-client[langchain]"),
    ],
)
def test_without_its_extra_an_integration_says_which_one_to_install(missing: str, script: str, extra: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; {script}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"pip install '{extra}'" in done.stderr
