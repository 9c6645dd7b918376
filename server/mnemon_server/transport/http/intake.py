"""Receives requests as protobuf, whatever their form is, within the memory and the time that all of them share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.message import Message

from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.services.shared.budget import SharedBudget
from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http.forms import Form
from mnemon_server.transport.http.json_reader import message_bytes
from mnemon_server.transport.http.json_text import Step, Steps, object_of
from mnemon_server.transport.http.request import Request
from mnemon_server.transport.http.zipped import unzipped, unzipped_size
from mnemon_server.transport.interceptors.base import current_call
from mnemon_server.transport.interceptors.low_priority import LowPriority
from mnemon_server.transport.interceptors.receiver import LATE_S
from mnemon_server.transport.interceptors.time_limit import TimeLimit

JSON_BYTES_MAX = 2 << 20
BODIES_BYTES_MAX = 24 << 20
"""Of requests that have not arrived as a whole, or are not read yet; as much as for answers that are not taken yet."""
FREE_BYTES = 16 << 10
"""Smaller requests are not counted: the limit of connections bounds them."""
MEDIUM_BYTES_MAX = 128 << 10
CURSOR = "cursor"
"""The field of a feed's requests and answers that says where it is."""
_IDENTITY = ("", "identity")


class Intake:
    """Receives the requests of a server. Belongs to one event loop."""

    def __init__(self, work: LowPriority, *, seconds: float, message_bytes_max: int) -> None:
        """Receives nothing yet.

        Args:
            work: does long work in steps.
            seconds: for which a request may take to arrive.
            message_bytes_max: of a request in protobuf, and of one that is unpacked.
        """
        self._work = work
        self._message_bytes_max = message_bytes_max
        self._budget = SharedBudget(BODIES_BYTES_MAX, "bytes of requests that are not read yet")
        self._late = TimeLimit(seconds)
        # Values take up to thirty times their text: large texts are read one after another, and apart from medium ones.
        self._medium, self._large = asyncio.Lock(), asyncio.Lock()

    @property
    def held(self) -> int:
        """The bytes of requests that are not read yet, but for small ones."""
        return self._budget.used

    async def receive(self, request: Request, form: Form, kind: type[Message] | None) -> bytes:
        """The message of a request as protobuf.

        Args:
            request: what has arrived of it so far.
            form: that of the message.
            kind: its type; None if no descriptor says it.

        Raises:
            InvalidArgumentError: fields of JSON are unknown or have no value of their type.
            MalformedMessageError: it is not in this form.
            MessageTooLargeError: it has too many bytes. If its length is known beforehand, none is read.
            TooManyRequestsError: other requests hold all of the memory.
            DeadlineExceededError: others need its memory, and it has taken longer than LATE_S to arrive.
        """
        async with self._holding(current_call.get().holder) as hold:
            data = await self._data(request, form, hold)
            if not form.is_json or kind is None:
                return data
            message = await self._read(kind, data)
        cursor = request.headers.get("last-event-id", "")
        has_cursor = cursor and CURSOR in kind.DESCRIPTOR.fields_by_name
        return message + kind(**{CURSOR: cursor}).SerializeToString() if has_cursor else message

    @asynccontextmanager
    async def _holding(self, holder: tuple[Hashable, ...]) -> "AsyncIterator[Callable[[int], Awaitable[None]]]":
        """Yields what takes memory for further bytes of a request, and gives all of it back at the end."""
        size = held = 0

        async def hold(count: int) -> None:
            nonlocal size, held
            size += count
            if (missing := size - held - FREE_BYTES) > 0:
                await self._take(missing, holder)
                held += missing

        try:
            yield hold
        finally:
            if held:
                self._budget.give_back(*holder, count=held)

    async def _take(self, count: int, holder: tuple[Hashable, ...]) -> None:
        """Takes memory, if need be from a request that has taken long to arrive."""
        while True:
            try:
                self._budget.take(*holder, count=count)
            except TooManyRequestsError:
                if not self._late.end_oldest(LATE_S):
                    raise
            else:
                return
            await asyncio.sleep(0)

    async def _data(self, request: Request, form: Form, hold: Callable[[int], Awaitable[None]]) -> bytes:
        """The message in its form, unpacked."""
        bytes_max = JSON_BYTES_MAX if form.is_json else self._message_bytes_max
        if request.method == "GET":
            data, may_be_compressed = request.message_of_query(), True
            compression = request.query.get("compression", "")
        else:
            with self._late.watch(f"the request did not arrive within {LATE_S:g} s, and others need its memory"):
                body = await request.body(bytes_max, hold)
            data, may_be_compressed = form.request(body)
            compression = request.headers.get(form.encoding_header, "")
        if compression in _IDENTITY or not may_be_compressed:
            return data
        if compression != "gzip":
            raise MalformedMessageError(f"{form.encoding_header} must be gzip or identity")
        await hold(unzipped_size(data, bytes_max))
        return await self._work.run(unzipped(data, bytes_max))

    async def _read(self, kind: type[Message], text: bytes) -> bytes:
        steps = _message_of(kind, text)
        if len(text) <= FREE_BYTES:
            return await self._work.run(steps)
        async with self._medium if len(text) <= MEDIUM_BYTES_MAX else self._large:
            return await self._work.run(steps)


def _message_of(kind: type[Message], text: bytes) -> Steps[bytes]:
    step = Step()
    value = yield from object_of(text, step)
    descriptor: Any = kind.DESCRIPTOR
    return (yield from message_bytes(descriptor, value, step))
