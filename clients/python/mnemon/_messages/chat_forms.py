"""Messages as the APIs of models have them, in the form of OpenAI's chat API: a role, a content and calls of tools."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

_REASONING = {"role": "assistant", "content": ""}


def chat_form(given: Any) -> Any:
    """The message in that form; its `payload` holds the original if the form cannot express all of it.

    It may be a mapping, or an object of an API's package, also as a part of the content: of OpenAI's chat completions,
    an item of its responses, a message of Anthropic's or a content of Gemini's. Anything else is returned as it is.
    """
    given = _plain(given)
    if not isinstance(given, Mapping):
        return given
    said = _of_responses(given) or _of_gemini(given) or _of_anthropic(given)
    return {**given, **said, "payload": given.get("payload") or as_json(given)} if said else given


def as_json(given: Any) -> str:
    """A message, or a part of one, as JSON, with values that JSON lacks as texts."""
    return json.dumps(given, ensure_ascii=False, default=_as_json_value)


def _plain(given: Any) -> Any:
    """What an API's package makes of an answer, as mappings and lists; such objects have a `model_dump` each."""
    if hasattr(given, "model_dump"):
        return given.model_dump(mode="json", exclude_none=True)
    if isinstance(given, Mapping):
        parts = {key: [_plain(part) for part in each] for key, each in given.items() if isinstance(each, list)}
        return {**given, **parts}
    return given


def _of_responses(given: Mapping[str, Any]) -> dict[str, Any]:
    """A call, its output, or reasoning, which is for the model alone; empty for any other message."""
    match given.get("type"):
        case "function_call":
            call = {"id": given.get("call_id"), "name": given.get("name"), "arguments": given.get("arguments", "")}
            return {"role": "assistant", "name": "", "content": "", "tool_calls": [call]}
        case "function_call_output":
            return {"role": "tool", "content": given.get("output") or "", "tool_call_id": given.get("call_id")}
    return _REASONING if given.get("type") == "reasoning" else {}


def _of_gemini(given: Mapping[str, Any]) -> dict[str, Any]:
    """A content of `parts`; empty for any other message. Thoughts are for the model alone.

    A call without an id has its name as such. Several results in one message are texts alone.
    """
    if "content" in given or not isinstance(given.get("parts"), list):
        return {}
    parts = [part for part in given["parts"] if isinstance(part, Mapping)]
    said = [part["text"] for part in parts if part.get("text") and not part.get("thought")]
    calls = [call for part in parts if (call := part.get("functionCall") or part.get("function_call"))]
    answers = [answer for part in parts if (answer := part.get("functionResponse") or part.get("function_response"))]
    content = "\n".join([*said, *(as_json(answer.get("response")) for answer in answers)])
    if len(answers) == 1:
        return {"role": "tool", "content": content, "tool_call_id": _call_id(answers[0])}
    role = "assistant" if given.get("role") == "model" else given.get("role")
    return {"role": role, "content": content, "tool_calls": [{**call, "id": _call_id(call)} for call in calls]}


def _call_id(given: Mapping[str, Any]) -> Any:
    return given.get("id") or given.get("name")


def _of_anthropic(given: Mapping[str, Any]) -> dict[str, Any]:
    """A message with calls or results of tools, which are parts of its content; empty for any other message.

    The result of a single call is a message of the tool; several stay parts, and their texts are kept.
    """
    content = given.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    if calls := [part for part in parts if part.get("type") == "tool_use"]:
        return {"tool_calls": [*(given.get("tool_calls") or ()), *calls]}
    results = [part for part in parts if part.get("type") == "tool_result"]
    if len(results) == len(parts) == 1:
        answer = results[0]
        return {"role": "tool", "content": answer.get("content") or "", "tool_call_id": answer.get("tool_use_id")}
    if results:
        texts = [part.get("content") if part.get("type") == "tool_result" else part.get("text") for part in parts]
        return {"content": "\n".join(text for text in texts if isinstance(text, str))}
    return {}


def _as_json_value(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
