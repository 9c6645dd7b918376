"""Problems with the files of a timeline, and their feed entries: one when a problem begins, one when all have ended."""

from collections.abc import Callable

from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError, StorageFullError
from mnemon_server.engines.promises.events import EventsWarning


class MaintenanceHealth:
    """The current problems by name. The maintenance thread changes them; any thread may call `failure`."""

    def __init__(self, note: Callable[[EventsWarning | None], object]) -> None:
        """Starts healthy. `note` adds a warning to the feed; None means that the timeline has recovered."""
        self._note = note
        self._problems: dict[str, EventsWarning] = {}
        self._warnings: list[EventsWarning] = []
        """The different warnings since the feed said that all is well. The first `_told_count` are in the feed."""
        self._told_count = 0
        self._is_warned = False

    def load(self, *, is_warned: bool) -> None:
        """Sets whether the feed ends with a warning, so that one by an earlier process is revoked once all is well."""
        self._is_warned = is_warned

    def failure(self) -> str | None:
        """The current problem; None without a problem."""
        problem = next(iter(self._problems.values()), None)
        return problem.message if problem else None

    def report(self, name: str, problem: EventsWarning) -> None:
        """Records a problem or its persistence. A problem that several tasks run into, or that comes back before the
        feed says that all is well, is reported once.
        """
        if name not in self._problems and problem not in self._warnings:
            self._warnings.append(problem)
        self._problems[name] = problem

    def clear(self, name: str) -> None:
        """Records that a problem has ended."""
        self._problems.pop(name, None)

    def note_warned(self) -> None:
        """Records that a warning was added to the feed by other code."""
        self._is_warned = True

    @property
    def is_unsaid(self) -> bool:
        """Whether the feed lacks an entry."""
        return self._told_count < len(self._warnings) or (self._is_warned and not self._problems)

    def tell(self) -> bool:
        """Adds the missing entries to the feed. Returns False if that failed and must be retried."""
        try:
            while self._told_count < len(self._warnings):
                self._note(self._warnings[self._told_count])
                self._is_warned = True
                self._told_count += 1
            if self._is_warned and not self._problems:
                self._note(None)
                self._is_warned = False
                self._warnings.clear()
                self._told_count = 0
        except (StorageFullError, StorageFailedError, RecordDamagedError):
            return False
        return True
