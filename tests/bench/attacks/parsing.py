"""How long protobuf takes to parse messages of 4 MB of small parts: so long no other thread of a server runs.

python -m tests.bench.attacks.parsing
"""

from time import thread_time

from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from mnemon.v1 import facts_pb2, knowledge_store_pb2  # noqa: F401 - they put their methods into the pool

from tests.bench.attacks.calls import wide_messages
from tests.bench.machine import describe

REPEATS = 5


def main() -> None:
    """Prints the table: the least processor time of a few repeats."""
    print(f"{describe()}\n\n| 4 MB of | method | parsed in, ms |\n| --- | --- | --- |")
    for parts, method, message in wide_messages():
        request = GetMessageClass(Default().FindMethodByName(f"mnemon.v1.{method.replace('/', '.')}").input_type)
        times = []
        for _ in range(REPEATS):
            began = thread_time()
            request.FromString(message)
            times.append(thread_time() - began)
        print(f"| {parts} | {method} | {min(times) * 1000:.1f} |")


if __name__ == "__main__":
    main()
