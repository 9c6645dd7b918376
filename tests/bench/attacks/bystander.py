"""A caller who asks for one small fact every ten milliseconds, in a process and on a connection of its own.

python -m tests.bench.attacks.bystander ADDRESS [API_KEY]

It writes a line once it runs, goes on until its input ends, and then writes the milliseconds of its calls, as JSON.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from mnemon.v1 import facts_pb2, facts_pb2_grpc

from tests.bench.attacks.calls import Caller, calling, ending, struct

PAUSE_S = 0.01
TIMEOUT_S = 20.0
NAMESPACE, KEY = ["bystander"], "one"


@dataclass
class Waits:
    """How long each call took, and how many failed."""

    milliseconds: list[float] = field(default_factory=list)
    failed: int = 0

    def percentile(self, share: float) -> float:
        """So many percent of the calls took no longer, in milliseconds."""
        return float(np.percentile(self.milliseconds, share))


@contextmanager
def bystander(caller: Caller) -> Iterator[Waits]:
    """Calls for as long as the block lasts; what it yields is filled at the end of it."""
    command = [sys.executable, "-m", __name__, caller.address, caller.api_key]
    waits = Waits()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline(), "the bystander could not begin"
        try:
            yield waits
        finally:
            told = json.loads(child.communicate()[0])
            waits.milliseconds, waits.failed = told["milliseconds"], told["failed"]


def _call_until_told(caller: Caller) -> Waits:
    waits, ended = Waits(), threading.Event()
    with calling(caller) as channel:
        facts: Any = facts_pb2_grpc.FactServiceStub(channel)
        fact = facts_pb2.Fact(namespace=NAMESPACE, key=KEY, value=struct(content="hello"))
        facts.PutFact(facts_pb2.PutFactRequest(fact=fact), timeout=TIMEOUT_S)
        request = facts_pb2.GetFactRequest(namespace=NAMESPACE, key=KEY)
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        print("calling", flush=True)
        while not ended.is_set():
            began = perf_counter()
            waits.failed += ending(lambda: facts.GetFact(request, timeout=TIMEOUT_S)) != "OK"
            waits.milliseconds.append((perf_counter() - began) * 1000)
            ended.wait(PAUSE_S)
    return waits


if __name__ == "__main__":
    print(json.dumps(vars(_call_until_told(Caller(*sys.argv[1:])))))
