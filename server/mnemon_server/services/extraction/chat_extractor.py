"""An extractor behind an OpenAI-compatible endpoint: a chat model that answers with JSON of a given schema."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mnemon_server.domain.bridge.extraction import (
    STATEMENTS_MAX,
    SUMMARY_CHARACTERS_MAX,
    Extracted,
    Extraction,
    ExtractionRequest,
    Refusal,
    Turn,
)
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.endpoints.client import (
    EndpointAnswerError,
    EndpointClient,
    EndpointError,
    EndpointRefusalError,
    EndpointSettings,
)
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.extraction.extractor import ExtractorAwayError, RefusedError

NAME = "the extractor"
ANSWER_BYTES_MAX = 1 << 20
PROMPT_FILE = Path(__file__).with_name("prompt.md")
PROMPT_BYTES_MAX = 1 << 16

_PATH = "chat/completions"
_BYTES_PER_TOKEN = 4
_REJECTING = frozenset({400, 413, 422})
"""Statuses that may be about what the messages say, or how long they are. All others are about the endpoint."""


def _nullable(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _object(**properties: Any) -> dict[str, Any]:
    # Strict schemas name every property as required.
    required = [*properties]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_STATEMENT = _object(
    content={"type": "string"},
    importance=_nullable("number"),
    messages={"type": "array", "items": {"type": "integer"}},
    valid_time=_nullable("string"),
    updates=_nullable("integer"),
)
_ANSWER = _object(statements={"type": "array", "items": _STATEMENT}, summary=_nullable("string"))
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "json_schema": {
        "type": "json_schema",
        "json_schema": {"name": "extraction", "strict": True, "schema": _ANSWER},
    },
    "json_object": {"type": "json_object"},
}
"""How an endpoint is asked for JSON, by the names of the setting."""


def read_prompt(path: Path | None) -> str:
    """The instructions for the model, from a file; without one, the instructions of the server.

    Raises:
        ConfigurationError: the file cannot be read, is too long, or holds nothing.
    """
    path = path or PROMPT_FILE
    try:
        with path.open("rb") as file:
            content = file.read(PROMPT_BYTES_MAX + 1)
        prompt = content.decode().strip()
    except OSError as error:
        raise ConfigurationError(f"the prompt file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the prompt file {path} is not UTF-8") from error
    if not prompt or len(content) > PROMPT_BYTES_MAX:
        raise ConfigurationError(f"the prompt file {path} must hold 1 to {PROMPT_BYTES_MAX:,} bytes of text")
    return prompt


class ChatExtractor:
    """An `Extractor` that asks a chat model. It sees numbers instead of ids, and learns nothing of the scope.

    Raises:
        ConfigurationError: the URL or the key file is invalid.
    """

    def __init__(
        self, model: str, settings: EndpointSettings, *, prompt: str, answer_format: str, threads: int
    ) -> None:
        """`answer_format` is a name in FORMATS; `threads` is the most concurrent calls."""
        self._model = model
        self._prompt = prompt
        self._format = FORMATS[answer_format]
        self._client = EndpointClient(settings)
        self._offload = Offload(threads, "extractor")

    async def extract(self, request: ExtractionRequest) -> Extraction:
        """See `Extractor.extract`."""
        asked = json.dumps(_values_of(request), ensure_ascii=False)
        body = {
            "model": self._model,
            "temperature": 0,
            "response_format": self._format,
            "messages": [{"role": "system", "content": self._prompt}, {"role": "user", "content": asked}],
        }
        estimated = (len(self._prompt.encode()) + len(asked.encode())) // _BYTES_PER_TOKEN
        try:
            answer = await self._offload(self._client.post, _PATH, body)
        except EndpointAnswerError as error:
            raise RefusedError(Refusal.NOT_JSON, str(error), estimated) from error
        except EndpointRefusalError as error:
            if error.status in _REJECTING:
                raise RefusedError(Refusal.REJECTED, str(error)) from error
            raise ExtractorAwayError(str(error)) from error
        except (EndpointError, ConfigurationError) as error:
            raise ExtractorAwayError(str(error)) from error
        return self._read(answer, request, estimated)

    async def aclose(self) -> None:
        """See `Extractor.aclose`."""
        self._client.close()
        await self._offload.aclose()

    def _read(self, answer: Any, request: ExtractionRequest, estimated: int) -> Extraction:
        tokens = _tokens_of(answer, estimated)
        try:
            content = answer["choices"][0]["message"]["content"]
            if not isinstance(content, str):
                raise TypeError
        except (TypeError, LookupError) as error:
            raise RefusedError(Refusal.WRONG_SHAPE, "it is no answer of a chat model", tokens) from error
        try:
            values = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise RefusedError(Refusal.NOT_JSON, "it is not JSON", tokens) from error
        try:
            found, summary = values["statements"], values.get("summary") or ""
            if not isinstance(found, list) or not isinstance(summary, str):
                raise TypeError
            statements = tuple(_statement(each, request) for each in found)
        except RefusedError as error:
            error.tokens = tokens
            raise
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise RefusedError(Refusal.WRONG_SHAPE, "it does not have the form that was asked for", tokens) from error
        return Extraction(statements=statements, summary=summary, tokens=tokens, extractor=self._model)


def _values_of(request: ExtractionRequest) -> dict[str, Any]:
    return {
        "now": _time_text(request.now),
        "limits": {
            "statements": STATEMENTS_MAX,
            "content_characters": request.content_max,
            "summary_characters": SUMMARY_CHARACTERS_MAX,
        },
        "refusal": request.refusal or None,
        "summary": request.summary or None,
        "known": [
            {"number": number, "content": each.content, "time": _time_text(each.time)}
            for number, each in enumerate(request.known, 1)
        ],
        "earlier": [*map(_turn_values, request.earlier)],
        "messages": [{"number": number, **_turn_values(each)} for number, each in enumerate(request.messages, 1)],
    }


def _turn_values(turn: Turn) -> dict[str, Any]:
    named = {"name": turn.name} if turn.name else {}
    return {"role": turn.role, **named, "time": _time_text(turn.time), "content": turn.content}


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _statement(values: Any, request: ExtractionRequest) -> Extracted:
    """A statement of the answer, with ids instead of numbers. Raises RefusedError, or an error of reading."""
    content, importance, updates = values["content"], values.get("importance"), values.get("updates")
    if not isinstance(content, str) or isinstance(importance, bool):
        raise TypeError
    known = _named([updates] if updates is not None else [], [each.memory_id for each in request.known])
    return Extracted(
        content=content,
        message_ids=_named(values["messages"], [each.message_id for each in request.messages]),
        importance=None if importance is None else float(importance),
        valid_time=_time(values.get("valid_time")),
        updates=known[0] if known else "",
    )


def _named(numbers: Iterable[Any], ids: list[str]) -> tuple[str, ...]:
    """The ids with these numbers, which begin at 1."""
    found = []
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError
        if not 1 <= number <= len(ids):
            raise RefusedError(Refusal.UNKNOWN_ID, "it has the number of a message or a statement that was not sent")
        found.append(ids[number - 1])
    return tuple(found)


def _time(text: Any) -> datetime | None:
    """The time of a text; None if it is empty or names no time, which a model often guesses."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _tokens_of(answer: Any, estimated: int) -> int:
    """The tokens as the endpoint counts them, or else an estimate."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0 else estimated
