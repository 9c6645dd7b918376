"""Reads merge rules from JSON and YAML files."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from mnemon._cli.documents.sources import STDIN

_FILE_BYTES_MAX = 1 << 20
_YAML_SUFFIXES = (".yaml", ".yml")


def read_rules(path: str) -> list[Any]:
    """The rules of a file, or of standard input as JSON: a list, or an object with such a list under "rules".

    Raises click.ClickException, with the place, if it is not such a list.
    """
    try:
        content = _read(path)
        found = _from_yaml(content) if path.lower().endswith(_YAML_SUFFIXES) else _from_json(content)
    except OSError as error:
        raise click.ClickException(f"{path}: it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path}: {str(error) or 'it is nested too deeply'}") from error
    if isinstance(found, dict) and [*found] == ["rules"]:
        found = found["rules"]
    if not isinstance(found, list):
        raise click.ClickException(
            f'{path}: it must contain a list of rules, or an object with such a list under "rules"'
        )
    return found


def _read(path: str) -> bytes:
    # One byte more than allowed shows that the file is too large, without reading all of it.
    if path == STDIN:
        content = sys.stdin.buffer.read(_FILE_BYTES_MAX + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    if len(content) > _FILE_BYTES_MAX:
        raise ValueError(f"it must be at most {_FILE_BYTES_MAX:,} bytes")
    return content


def _from_json(content: bytes) -> Any:
    return json.loads(content, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return found


def _from_yaml(content: bytes) -> Any:
    try:
        from mnemon._cli.rules.yaml import parsed
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise ValueError("YAML needs pyyaml; install it with: pip install 'mnemon-client[cli]'") from error
    return parsed(content)
