"""How long it takes to read messages of 4 MB of small parts: at once, and in slices.

python -m tests.bench.attacks.parsing

While protobuf reads, no other thread of a server runs; the server reads large messages in slices.
"""

from collections.abc import Callable
from contextlib import suppress
from time import thread_time

from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from mnemon.v1 import facts_pb2, knowledge_store_pb2  # noqa: F401 - they put their methods into the pool
from mnemon_server.transport.convert.shared.slices import merge
from mnemon_server.transport.errors import MalformedMessageError

from tests.bench.attacks.calls import wide_messages
from tests.bench.machine import describe

REPEATS = 5


def main() -> None:
    """Prints the table: the least processor time of a few repeats."""
    print(f"{describe()}\n\n| 4 MB of | method | at once, ms | in slices, ms |")
    print("| --- | --- | --- | --- |")
    for parts, method, message in wide_messages():
        kind = GetMessageClass(Default().FindMethodByName(f"mnemon.v1.{method.replace('/', '.')}").input_type)
        at_once, in_slices = (
            min(_seconds(read, kind(), message) for _ in range(REPEATS)) for read in (_at_once, merge)
        )
        print(f"| {parts} | {method} | {at_once * 1000:.1f} | {in_slices * 1000:.1f} |")


def _at_once(message: Message, data: bytes) -> None:
    message.MergeFromString(data)


def _seconds(read: Callable[[Message, bytes], None], message: Message, data: bytes) -> float:
    """The processor time of reading. Some of the messages are refused."""
    began = thread_time()
    with suppress(MalformedMessageError):
        read(message, data)
    return thread_time() - began


if __name__ == "__main__":
    main()
