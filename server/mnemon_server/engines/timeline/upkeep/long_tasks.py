"""Work of the keeper that takes long, one job after the other, a step at a time."""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

Steps: TypeAlias = Generator[None, None, Any]


@dataclass(slots=True, kw_only=True)
class Job:
    """Something to be done in steps."""

    name: str
    begin: Callable[[], Steps]
    """Begins, and begins anew after what went wrong."""
    done: "Future[Any] | None" = None
    """Gets what the steps return, or the error that ended them; None where nobody waits: then it is tried again."""
    share_max: float = 1.0
    """The share of the time that it may take."""
    steps: Steps | None = None

    def advance(self) -> bool:
        """Takes a step; False where that was the last."""
        self.steps = self.steps or self.begin()
        try:
            next(self.steps)
        except StopIteration as end:
            if self.done is not None:
                self.done.set_result(end.value)
            return False
        except BaseException:
            self.steps = None
            raise
        return True

    def fail(self, error: BaseException) -> None:
        """Ends it, wherever it is."""
        if self.steps is not None:
            self.steps.close()
        if self.done is not None:
            self.done.set_exception(error)


class Jobs:
    """Those that wait; the first one is being done."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()

    @property
    def current(self) -> Job | None:
        """What is to be done next."""
        return self._waiting[0] if self._waiting else None

    def add(self, job: Job) -> None:
        """Puts a job behind the others; one that somebody waits for goes before what nobody waits for.

        Of those that nobody waits for, one of a name is enough, where it has not begun.
        """
        if job.done is None:
            if not any(
                other.name == job.name and other.done is None and other.steps is None for other in self._waiting
            ):
                self._waiting.append(job)
            return
        self._waiting.insert(sum(other.done is not None for other in self._waiting), job)

    def drop(self, job: Job) -> None:
        """It is over."""
        self._waiting.remove(job)

    def close(self, error: BaseException) -> None:
        """Ends all of them."""
        while self._waiting:
            self._waiting.popleft().fail(error)
