"""Receives requests as protobuf, whatever their form is, within the memory and the time that all of them share."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager

from google.protobuf.message import Message

from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.services.limits.accounts import SharedBudget
from mnemon_server.transport.conversions import Conversions
from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http.forms import Form
from mnemon_server.transport.http.json_request import request_bytes
from mnemon_server.transport.http.request import Request, too_large
from mnemon_server.transport.interceptors.base import current_call
from mnemon_server.transport.interceptors.codec import LATE_S
from mnemon_server.transport.interceptors.time_limit import TimeLimit

JSON_BYTES_MAX = 2 << 20
BODIES_BYTES_MAX = 24 << 20
"""Bytes of requests that have not arrived completely, or are not read yet; the same as for answers not taken yet."""
FREE_BYTES = 16 << 10
"""Smaller requests are not counted: the limit of connections bounds them."""
CURSOR = "cursor"
"""The field of a feed's requests and answers that says where it is."""
_IDENTITY = ("", "identity")
_GZIP, _GZIP_BITS, _SIZE_BYTES = b"\x1f\x8b", 31, 4
"""The first bytes of gzip; zlib's largest window, with gzip's header; the bytes of the size at gzip's end."""
_RATIO_MAX = 1032
"""Gzip cannot compress more than that."""
_NO_GZIP = "the message is not compressed with gzip, as its header says"
_CUT_OFF = "the compressed message is cut off"


class Intake:
    """Receives the requests of a server. Belongs to one event loop."""

    def __init__(self, conversions: Conversions, *, seconds: float, message_bytes_max: int) -> None:
        """A request may take `seconds` to arrive; `message_bytes_max` also holds for what is unpacked."""
        self._convert = conversions
        self._message_bytes_max = message_bytes_max
        self._budget = SharedBudget(BODIES_BYTES_MAX, "bytes of requests that are not read yet")
        self._late = TimeLimit(seconds)

    @property
    def held(self) -> int:
        """The bytes of requests that are not read yet, but for small ones."""
        return self._budget.used

    async def receive(self, request: Request, form: Form, kind: type[Message] | None) -> bytes:
        """The message of a request as protobuf; `kind` is its type, None if no descriptor says it.

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
            message = await self._convert(len(data), request_bytes, kind, data)
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
            if request.query:
                name = next(iter(request.query))[:80]
                raise MalformedMessageError(
                    f"the address has a query, with {name!r}: fields of the request belong into the body of a POST"
                )
            with self._late.watch(f"the request did not arrive within {LATE_S:g} s, and others need its memory"):
                body = await request.body(bytes_max, hold)
            data, may_be_compressed = form.request(body)
            compression = request.headers.get(form.encoding_header, "")
        if compression in _IDENTITY or not may_be_compressed:
            return data
        if compression != "gzip":
            raise MalformedMessageError(f"{form.encoding_header} must be gzip or identity")
        size = unzipped_size(data, bytes_max)
        await hold(size)
        return await self._convert(size, unzipped, data, size)


def unzipped_size(data: bytes, bytes_max: int) -> int:
    """The number of bytes that a compressed message says it holds.

    Raises:
        MalformedMessageError: it is not gzip, or cannot hold so many.
        MessageTooLargeError: it says that it holds more than that.
    """
    if not data.startswith(_GZIP):
        raise MalformedMessageError(_NO_GZIP)
    size = int.from_bytes(data[-_SIZE_BYTES:], "little")
    if size > len(data) * _RATIO_MAX:
        raise MalformedMessageError(_CUT_OFF)
    if size > bytes_max:
        raise too_large(bytes_max)
    return size


def unzipped(data: bytes, size: int) -> bytes:
    """The content of a compressed message that says it holds so many bytes; no more are unpacked.

    Raises:
        MalformedMessageError: it is not one message of gzip, is cut off, or holds more.
    """
    reader = zlib.decompressobj(_GZIP_BITS)
    try:
        found = reader.decompress(data, size + 1)
    except zlib.error:
        raise MalformedMessageError(_NO_GZIP) from None
    if len(found) > size:
        raise MalformedMessageError("the compressed message holds more bytes than its end says")
    if not reader.eof:
        raise MalformedMessageError(_CUT_OFF)
    if reader.unused_data:
        raise MalformedMessageError("the compressed message has several parts; it must be one")
    return found
