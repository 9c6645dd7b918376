"""The files of a folder that its `.gitignore` files leave out."""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

import click
from pathspec import GitIgnoreSpec, Pattern


class IgnoredFiles:
    """The paths in a folder that Git would ignore, by every `.gitignore` from the repository's root down.

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
            decisive = (
                pattern.include for line, pattern in reversed(self._rules(folder)) if _fits(line, pattern, inside)
            )
            if (is_ignored := next(decisive, None)) is not None:
                return is_ignored
        return False


def _fits(line: str, pattern: Pattern, path: str) -> bool:
    """Whether a line matches this path itself; folders above it were checked before."""
    if line.endswith("/") and not path.endswith("/"):
        return False
    if "/" not in line.rstrip("/"):
        return _matches(pattern, PurePosixPath(path).name + ("/" if path.endswith("/") else ""))
    if line.endswith("/**"):
        return _matches(pattern, path.rstrip("/"))
    return _matches(pattern, path) and not _matches(pattern, f"{PurePosixPath(path).parent}/")


def _matches(pattern: Pattern, path: str) -> bool:
    return pattern.match_file(path) is not None


def _between(folder: Path, top: Path) -> Iterator[Path]:
    """A folder and those above it up to the top; empty if the folder is outside."""
    if folder.is_relative_to(top):
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _read_rules(folder: Path) -> list[tuple[str, Pattern]]:
    """The lines of the folder's `.gitignore`, and what they match."""
    path = folder / ".gitignore"
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines() if path.is_file() else []
    except OSError as error:
        advice = "--no-ignore goes on without it"
        raise click.ClickException(f"{path}: it cannot be read: {error.strerror or error}; {advice}") from error
    return [(line.strip(), each) for line in lines for each in _patterns(line) if each.include is not None]


def _patterns(line: str) -> Sequence[Pattern]:
    """The pattern of a line, or None if it is invalid, as Git ignores such lines."""
    try:
        return GitIgnoreSpec.from_lines([line]).patterns
    except ValueError:
        return ()
