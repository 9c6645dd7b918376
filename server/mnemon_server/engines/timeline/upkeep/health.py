"""What is wrong with the files of a timeline, and what the feed says of it: once when it begins, once when it ends."""

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.promises.timeline import TimelineWarning
from mnemon_server.engines.timeline.upkeep.manifest import Change, Manifest


class KeeperHealth:
    """Problems by name. The keeper's thread changes them; any thread may ask for `failure`."""

    def __init__(self, manifest: Manifest) -> None:
        """Nothing is wrong."""
        self._manifest = manifest
        self._problems: dict[str, TimelineWarning] = {}
        self._unsaid: list[TimelineWarning] = []
        self._is_warned = False

    def load(self) -> None:
        """Takes up what the feed says: a warning of a process that is no more is taken back once all is well."""
        self._is_warned = self._manifest.is_warned()

    def failure(self) -> str | None:
        """What is wrong now; None where nothing is."""
        problem = next(iter(self._problems.values()), None)
        return problem.message if problem else None

    def report(self, name: str, problem: TimelineWarning) -> None:
        """Something is wrong, or still is."""
        if name not in self._problems:
            self._unsaid.append(problem)
        self._problems[name] = problem

    def clear(self, name: str) -> None:
        """It is over."""
        self._problems.pop(name, None)

    def note_warned(self) -> None:
        """The feed got a warning by another way."""
        self._is_warned = True

    @property
    def is_unsaid(self) -> bool:
        """Whether the feed has yet to say something."""
        return bool(self._unsaid) or (self._is_warned and not self._problems)

    def tell(self) -> bool:
        """Has the feed say what it does not say yet; False where that failed, and is to be tried again."""
        try:
            while self._unsaid:
                self._manifest.commit(Change(warning=self._unsaid[0]))
                self._is_warned = True
                del self._unsaid[0]
            if self._is_warned and not self._problems:
                self._manifest.commit(Change(healthy=True))
                self._is_warned = False
        except (StorageFullError, StorageFailedError):
            return False
        return True
