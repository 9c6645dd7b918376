"""The progress bar of commands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def progress(*columns: "ProgressColumn") -> "Progress":
    """A bar on standard error, with these columns after it instead of the usual ones."""
    from rich.console import Console
    from rich.progress import Progress

    shown = (*Progress.get_default_columns()[:2], *columns) if columns else ()
    return Progress(*shown, console=Console(stderr=True))


def byte_progress() -> "Progress":
    """A bar that counts bytes."""
    from rich.progress import DownloadColumn, TimeRemainingColumn

    return progress(DownloadColumn(), TimeRemainingColumn())
