"""Answers as JSON."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import Message

from mnemon_server.transport.http.json_writer import has_small_parts, written, written_in_steps

T = TypeVar("T")

INLINE_ANSWER_BYTES_MAX = 4 << 10
"""Larger messages become JSON in steps or on a thread: of two bytes each, this is as many values."""
STEPPED_ANSWER_BYTES_MAX = 64 << 10
"""A page of records up to this size becomes JSON in steps: on a thread, it would wait for the interpreter lock for
longer than it takes."""
MEDIUM_BYTES_MAX = 128 << 10

# One each, so that the event loop waits for few threads to give up the interpreter lock, and answers of ordinary size
# wait for no large one.
_medium, _large = ThreadPoolExecutor(1, "json"), ThreadPoolExecutor(1, "json-large")


async def text_of(message: Message, size: int) -> bytes:
    """A message of `size` bytes as JSON, without line breaks."""
    if size <= INLINE_ANSWER_BYTES_MAX:
        return _write(message)
    if size <= STEPPED_ANSWER_BYTES_MAX and has_small_parts(message):
        return dumped(await written_in_steps(message))
    return await _on_thread(size, _write, message)


async def _on_thread(size: int, convert: Callable[..., T], *given: Any) -> T:
    threads = _medium if size <= MEDIUM_BYTES_MAX else _large
    return await asyncio.get_running_loop().run_in_executor(threads, convert, *given)


def dumped(value: Any) -> bytes:
    """A JSON value as text without line breaks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _write(message: Message) -> bytes:
    return dumped(written(message))
