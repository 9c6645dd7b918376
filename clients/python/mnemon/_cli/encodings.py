"""Text in UTF-8 or, with a byte order mark, in UTF-16, which PowerShell and Notepad write."""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

TEXT_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


def is_wide(data: bytes) -> bool:
    """Whether these bytes begin with the byte order mark of UTF-16."""
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def decoded(data: bytes) -> str:
    """The text. Raises UnicodeDecodeError."""
    return data.decode("utf-16" if is_wide(data) else "utf-8-sig")


def content_of(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """The text of the file that an option or an argument names; "-" is standard input."""
    if path is None:
        return None
    try:
        return decoded(sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes())
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is not UTF-8: {error.reason}", context, parameter) from None


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, in UTF-8. Invalid UTF-16 becomes U+FFFD."""
    first = file.readline()
    if is_wide(first):
        yield from (first + file.read()).decode("utf-16", "replace").encode().splitlines()
    else:
        yield first
        yield from file
