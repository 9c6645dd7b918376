"""A vendor's model with scripted replies, which the README's loop calls instead of the real one."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

_WRITTEN = "Ada eats no meat."
_SINCE_MAY = "Ada has eaten no meat since May."


class OpenAI:
    """The part of the vendor's client that a loop over tool calls needs."""

    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=_create))


def _create(*, model: str, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
    assert model
    assert [tool["function"]["name"] for tool in tools] == ["manage_memory", "search_memory"]
    replies = [message for message in messages if not isinstance(message, dict)]
    reply = _STEPS[len(replies)](_results(messages, replies[-1:]))
    return SimpleNamespace(choices=[SimpleNamespace(message=reply)])


def _results(messages: list[Any], last: Sequence[Any]) -> list[str]:
    """The results of the calls in the last reply. Each call must have been answered, in order."""
    asked = [call.id for reply in last for call in reply.tool_calls]
    answers = messages[-len(asked) :] if asked else []
    assert [answer["tool_call_id"] for answer in answers] == asked
    return [answer["content"] for answer in answers]


def _remember_and_search(results: list[str]) -> Any:
    assert results == []
    return _calling(("manage_memory", {"content": _WRITTEN}), ("search_memory", {"query": "work"}))


def _update_without_an_id(results: list[str]) -> Any:
    created, found = results
    assert created.startswith("created memory ")
    # The calls ran in order: the second one found what the first one stored.
    assert [fact["value"] for fact in json.loads(found)] == [{"content": _WRITTEN}]
    _known.append(created.removeprefix("created memory "))
    return _calling(("manage_memory", {"action": "update", "content": _SINCE_MAY}))


def _update(results: list[str]) -> Any:
    assert results == ["error: id: must name the memory to update"]
    return _calling(("manage_memory", {"action": "update", "content": _SINCE_MAY, "id": _known[-1]}))


def _search(results: list[str]) -> Any:
    assert results == [f"updated memory {_known[-1]}"]
    return _calling(("search_memory", {"query": "What does she eat?"}))


def _answer(results: list[str]) -> Any:
    [found] = json.loads(results[0])
    return SimpleNamespace(content=f"I remember: {found['value']['content']}", tool_calls=None)


def _calling(*calls: tuple[str, dict[str, Any]]) -> Any:
    made = [
        SimpleNamespace(id=f"call-{number}", function=SimpleNamespace(name=name, arguments=json.dumps(arguments)))
        for number, (name, arguments) in enumerate(calls)
    ]
    return SimpleNamespace(content=None, tool_calls=made)


_known: list[str] = []
_STEPS = (_remember_and_search, _update_without_an_id, _update, _search, _answer)
