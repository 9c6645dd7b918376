"""The files of a folder that its `.gitignore` files leave out."""

from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

import click
from pathspec import GitIgnoreSpec


class IgnoredFiles:
    """The paths inside a folder that Git would ignore, by each `.gitignore` from the top of the repository on down.

    In a folder that is ignored itself, and so was given on purpose, only those of its own count, as they do outside of
    repositories.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._rules = cache(_read_rules)

    def __contains__(self, path: Path) -> bool:
        return self._is_ignored(self._root / path, self._top)

    @cached_property
    def _top(self) -> Path:
        repository = next((each for each in (self._root, *self._root.parents) if (each / ".git").exists()), self._root)
        return self._root if self._is_ignored(self._root, repository) else repository

    def _is_ignored(self, path: Path, top: Path) -> bool:
        for folder in _between(path.parent, top):
            inside = path.relative_to(folder).as_posix() + ("/" if path.is_dir() else "")
            if (ignored := self._rules(folder).check_file(inside).include) is not None:
                return ignored
        return False


def _between(folder: Path, top: Path) -> Iterator[Path]:
    """A folder and those above it up to the top; nothing if it is not in there."""
    if folder.is_relative_to(top):
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _read_rules(folder: Path) -> GitIgnoreSpec:
    path = folder / ".gitignore"
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.is_file() else []
    except OSError as error:
        advice = "--no-ignore goes on without it"
        raise click.ClickException(f"{path}: it cannot be read: {error.strerror or error}; {advice}") from error
    return GitIgnoreSpec.from_lines(line for line in lines if _is_pattern(line))


def _is_pattern(line: str) -> bool:
    """Whether Git would not pass over the line: a lone "!", for example, means nothing."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
