"""How one attack is measured: a bystander alone and beside it, and the memory of the server."""

import statistics
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from tests.bench.attacks.bystander import bystander
from tests.bench.attacks.calls import Caller, Outcomes, Strike, Target
from tests.bench.attacks.load import burn, with_load

SETTLE_S = 10.0


def _nothing(_: Target) -> None:
    """Needs no preparation."""


@dataclass(frozen=True)
class Attack:
    """What is done to a server, after what was stored for it."""

    name: str
    strike: Strike
    prepare: Callable[[Target], None] = _nothing
    below: bool = False
    """Whether it is below gRPC, so that a bare server can be attacked in the same way."""


@dataclass
class Measured:
    """One attack: the bystander's p99 in each round, and memory in MiB."""

    alone_ms: list[float] = field(default_factory=list)
    burning_ms: list[float] = field(default_factory=list)
    floor_ms: list[float] = field(default_factory=list)
    bare_ms: list[float] = field(default_factory=list)
    """Beside the attack on a bare server, which is the bystander's; empty if it cannot be attacked in this way."""
    beside_ms: list[float] = field(default_factory=list)
    processors: list[float] = field(default_factory=list)
    """How many the attacker used."""
    failed: int = 0
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    outcomes: Outcomes = field(default_factory=Outcomes)

    def row(self, name: str) -> str:
        """A line of the table."""
        floors = [statistics.median(each) for each in (self.alone_ms, self.burning_ms, self.floor_ms)]
        beside = statistics.median(self.beside_ms)
        told = ", ".join(f"{count:,} {code}" for code, count in sorted(self.outcomes.items()) if count)
        waits = " | ".join(f"{each:.1f}" for each in (*floors, beside, *(beside / floor for floor in floors)))
        bare = f"{statistics.median(self.bare_ms):.1f}" if self.bare_ms else ""
        memory = f"{self.before:.0f} | {self.peak:.0f} | {self.after:.0f} | {self.peak - self.before:+.0f}"
        processors = statistics.median(self.processors)
        return f"| {name} | {waits} | {bare} | {self.failed} | {memory} | {processors:.2f} | {told} |"


HEAD = """\
| attack | p99 alone, ms | burning | floor | attacked | to alone | to burning | to floor | bare | failed \
| MiB before | peak | after | growth | processors | its calls |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@dataclass(frozen=True)
class Servers:
    """The servers of one attack."""

    target: Target
    """The server that the bystander calls."""
    other: Target
    """Another server like it."""
    bare: Target
    """A bare server of the runtime."""
    caller: Caller
    """The bystander."""


def measure(
    attack: Attack,
    servers: Servers,
    attacker: Executor,
    *,
    rounds: int,
    seconds: float,
    advance: Callable[[], None],
) -> Measured:
    """The bystander alone, beside the floors, and beside the attack on its own server, in turns.

    One floor is the attack on another server: the bystander loses what the machine gives to attacker and attacked, and
    nothing else. Another one is a process that uses as many processors as the attacker alone, and calls no server. An
    attack below gRPC also has a bare server as its floor, which the bystander calls as well.

    Args:
        attack: what is done.
        servers: the servers of this attack.
        attacker: runs what it gets in a process of its own.
        rounds: how often.
        seconds: how long each turn is.
        advance: called after each round.
    """
    target = servers.target
    attack.prepare(target)
    attack.prepare(servers.other)
    measured = Measured()
    with bystander(servers.caller):
        sleep(1.0)  # opens what is opened at the first call
    measured.before = memory_mib(target.pid, "VmRSS")
    Path(f"/proc/{target.pid}/clear_refs").write_text("5", encoding="ascii")  # begins the peak anew
    for _ in range(rounds):
        _turn(measured, attack, servers, attacker, seconds)
        advance()
    measured.peak = memory_mib(target.pid, "VmHWM")
    sleep(SETTLE_S)
    measured.after = memory_mib(target.pid, "VmRSS")
    return measured


def _turn(measured: Measured, attack: Attack, servers: Servers, attacker: Executor, seconds: float) -> None:
    strike = partial(strike_for, seconds, attack.strike)
    with bystander(servers.caller) as alone:
        sleep(seconds)
    with bystander(servers.caller) as floor:
        _, processors = attacker.submit(with_load, partial(strike, servers.other)).result()
    with bystander(servers.caller) as burning:
        attacker.submit(burn, seconds, processors).result()
    with bystander(servers.caller) as attacked:
        outcomes, processors = attacker.submit(with_load, partial(strike, servers.target)).result()
    if attack.below:
        with bystander(Caller(servers.bare.address)) as bare:
            attacker.submit(with_load, partial(strike, servers.bare)).result()
        measured.bare_ms.append(bare.percentile(99))
    measured.alone_ms.append(alone.percentile(99))
    measured.floor_ms.append(floor.percentile(99))
    measured.burning_ms.append(burning.percentile(99))
    measured.beside_ms.append(attacked.percentile(99))
    measured.processors.append(processors)
    measured.outcomes += outcomes
    measured.failed += attacked.failed


def strike_for(seconds: float, strike: Strike, target: Target) -> Outcomes:
    """Strikes again and again, at least once; how the calls ended."""
    deadline = monotonic() + seconds
    outcomes = strike(target)
    while monotonic() < deadline:
        outcomes += strike(target)
    return outcomes


def memory_mib(pid: int, name: str) -> float:
    """A line of the process's status."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))
