"""Long-running maintenance jobs, run one after the other in steps."""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

Steps: TypeAlias = Generator[None, None, Any]


@dataclass(slots=True, kw_only=True)
class Job:
    """A job that runs in steps."""

    name: str
    begin: Callable[[], Steps]
    """Creates the steps, also for a new start after damage was repaired."""
    done: "Future[Any] | None" = None
    """Gets the result of the steps, or their error. None if no caller waits: then a failed job is retried."""
    share_max: float = 1.0
    """The maximum share of time that it may take."""
    steps: Steps | None = None

    def advance(self) -> bool:
        """Runs a step; returns False if that was the last."""
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
        """Ends the job with an error."""
        if self.steps is not None:
            self.steps.close()
        if self.done is not None:
            self.done.set_exception(error)


class Jobs:
    """A queue of jobs; the first is running."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()

    @property
    def current(self) -> Job | None:
        """The job to run next."""
        return self._waiting[0] if self._waiting else None

    def add(self, job: Job) -> None:
        """Appends a job. A job with a waiting caller goes before those without.

        A job without a waiting caller is dropped if another one with the same name has not started yet.
        """
        if job.done is None:
            if not any(
                other.name == job.name and other.done is None and other.steps is None for other in self._waiting
            ):
                self._waiting.append(job)
            return
        self._waiting.insert(sum(other.done is not None for other in self._waiting), job)

    def drop(self, job: Job) -> None:
        """Removes a job that has ended."""
        self._waiting.remove(job)

    def close(self, error: BaseException) -> None:
        """Ends all jobs with an error."""
        while self._waiting:
            self._waiting.popleft().fail(error)
