"""The files of this repository that git tracks."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUBS = ROOT / "clients/python/mnemon/v1"
GENERATED_FROM = "# Generated from "
"""How a Python file begins that is generated from another one."""


def tracked_files(*patterns: str) -> list[Path]:
    """Absolute paths of the tracked files that match the git patterns, sorted. Without patterns, all files."""
    listing = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True)
    files = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return sorted(file for file in files if file.is_file())


def written_python(*patterns: str) -> list[Path]:
    """The hand-written Python files among them, without generated ones."""
    python = [file for file in tracked_files(*patterns) if file.suffix == ".py" and STUBS not in file.parents]
    return [file for file in python if not file.read_text(encoding="utf-8").startswith(GENERATED_FROM)]
