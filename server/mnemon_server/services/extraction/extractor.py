"""The interface of an extractor, its errors, and the checks of its answers."""

from dataclasses import replace
from typing import Protocol

from mnemon_server.domain.bridge.extraction import (
    STATEMENTS_MAX,
    SUMMARY_CHARACTERS_MAX,
    Extracted,
    Extraction,
    ExtractionRequest,
    Refusal,
)
from mnemon_server.domain.documents import CONTENT_BYTES_MAX
from mnemon_server.domain.errors import ToolUnreachableError, TooManyRequestsError
from mnemon_server.domain.validation import is_text


class ExtractorAwayError(ToolUnreachableError):
    """The extractor cannot be asked now. The message contains no text of a request or of an answer."""


class BudgetSpentError(TooManyRequestsError):
    """The budget of calls or tokens is used up."""


class RefusedError(Exception):
    """An answer cannot be used, or the extractor rejected the request. The message contains no text of either."""

    def __init__(self, reason: Refusal, message: str, tokens: int = 0) -> None:
        self.reason, self.tokens = reason, tokens
        super().__init__(message)


class Extractor(Protocol):
    """Makes statements of messages. May be asked several times at once; belongs to one event loop."""

    async def extract(self, request: ExtractionRequest) -> Extraction:
        """The statements, as answered: the caller checks them.

        Raises:
            ExtractorAwayError: it cannot be reached, is late, or is not set up correctly.
            RefusedError: it rejected the request, or its answer has another form.
        """

    async def aclose(self) -> None:
        """Closes connections."""


def checked(answer: Extraction, request: ExtractionRequest) -> Extraction:
    """The answer, if all of it can be saved. Repeated ids and surrounding whitespace are removed.

    Raises:
        RefusedError: something is too long, or is about messages or statements that are not part of the request.
    """
    if len(answer.statements) > STATEMENTS_MAX:
        raise RefusedError(
            Refusal.TOO_LONG, f"there are {len(answer.statements):,} statements, of at most {STATEMENTS_MAX}"
        )
    if len(answer.summary) > SUMMARY_CHARACTERS_MAX:
        raise RefusedError(Refusal.TOO_LONG, f"the summary has more than {SUMMARY_CHARACTERS_MAX:,} characters")
    if not is_text(answer.summary, CONTENT_BYTES_MAX):
        raise RefusedError(Refusal.WRONG_SHAPE, "the summary has characters that are no text")
    messages = {turn.message_id for turn in request.messages}
    known = {each.memory_id for each in request.known}
    for number, statement in enumerate(answer.statements, 1):
        _check(statement, f"statement {number}", request.content_max, messages, known)
    statements = tuple(map(_cleaned, answer.statements))
    return replace(answer, statements=statements, summary=answer.summary.strip())


def _check(statement: Extracted, name: str, content_max: int, messages: set[str], known: set[str]) -> None:
    content = statement.content.strip()
    if not content or not is_text(content, CONTENT_BYTES_MAX):
        raise RefusedError(Refusal.WRONG_SHAPE, f"{name} has no content, or characters that are no text")
    if len(content) > content_max:
        raise RefusedError(Refusal.TOO_LONG, f"{name} has more than {content_max:,} characters")
    if statement.importance is not None and not 0.0 <= statement.importance <= 1.0:
        raise RefusedError(Refusal.WRONG_SHAPE, f"the importance of {name} is not 0 to 1")
    if not statement.message_ids or not messages.issuperset(statement.message_ids):
        raise RefusedError(
            Refusal.UNKNOWN_ID, f"{name} names no message, or one that is not among those to extract from"
        )
    if statement.updates and statement.updates not in known:
        raise RefusedError(Refusal.UNKNOWN_ID, f"{name} updates a statement that is not among the known ones")


def _cleaned(statement: Extracted) -> Extracted:
    ids = tuple(dict.fromkeys(statement.message_ids))
    return replace(statement, content=statement.content.strip(), message_ids=ids)
