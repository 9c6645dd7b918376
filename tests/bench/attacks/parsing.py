"""How long it takes to read messages of 4 MB of small parts: at once, in slices, and the longest slice.

python -m tests.bench.attacks.parsing

While protobuf reads, no other thread of a server runs; the server reads large messages in slices.
"""

from contextlib import suppress
from itertools import pairwise
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
    print(f"{describe()}\n\n| 4 MB of | method | at once, ms | in slices, ms | longest slice, ms |")
    print("| --- | --- | --- | --- | --- |")
    for parts, method, message in wide_messages():
        kind = GetMessageClass(Default().FindMethodByName(f"mnemon.v1.{method.replace('/', '.')}").input_type)
        at_once = min(_at_once(kind, message) for _ in range(REPEATS))
        slices = [_slices(kind, message) for _ in range(REPEATS)]
        in_slices, longest = min(map(sum, slices)), min(map(max, slices))
        print(f"| {parts} | {method} | {at_once * 1000:.1f} | {in_slices * 1000:.1f} | {longest * 1000:.1f} |")


def _at_once(kind: type[Message], data: bytes) -> float:
    began = thread_time()
    kind.FromString(data)
    return thread_time() - began


def _slices(kind: type[Message], data: bytes) -> list[float]:
    """The seconds of each slice. Some messages are refused amid them."""
    marks = [thread_time()]
    with suppress(MalformedMessageError):
        for _ in merge(kind(), data):
            marks.append(thread_time())  # noqa: PERF401 - what came before a refusal counts
    marks.append(thread_time())
    return [after - before for before, after in pairwise(marks)]


if __name__ == "__main__":
    main()
