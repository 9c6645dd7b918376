"""How one attack is measured: a bystander alone and beside it, and the memory of the server."""

import statistics
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from tests.bench.attacks.bystander import Waits, bystander
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


@dataclass
class Measured:
    """One attack: the bystander's p99 in each round, and memory in MiB."""

    alone_ms: list[float] = field(default_factory=list)
    burning_ms: list[float] = field(default_factory=list)
    floor_ms: list[float] = field(default_factory=list)
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
        memory = f"{self.before:.0f} | {self.peak:.0f} | {self.after:.0f} | {self.peak - self.before:+.0f}"
        processors = statistics.median(self.processors)
        return f"| {name} | {waits} | {self.failed} | {memory} | {processors:.2f} | {told} |"


HEAD = """\
| attack | p99 alone, ms | burning | floor | attacked | to alone | to burning | to floor | failed \
| MiB before | peak | after | growth | processors | its calls |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def measure(
    attack: Attack,
    target: Target,
    other: Target,
    caller: Caller,
    attacker: Executor,
    *,
    rounds: int,
    seconds: float,
    advance: Callable[[], None],
) -> Measured:
    """The bystander alone, beside two floors, and beside the attack on its own server, in turns.

    One floor is the attack on another server: the bystander loses what the machine gives to attacker and attacked, and
    nothing else. The other one is a process that uses as many processors as the attacker alone, and calls no server.

    Args:
        attack: what is done.
        target: the bystander's server, and as whom it is attacked.
        other: another server like it.
        caller: the bystander.
        attacker: runs what it gets in a process of its own.
        rounds: how often.
        seconds: how long each turn is.
        advance: called after each round.
    """
    attack.prepare(target)
    attack.prepare(other)
    measured = Measured()
    beside = partial(bystander, caller)
    with beside():
        sleep(1.0)  # opens what is opened at the first call
    measured.before = memory_mib(target.pid, "VmRSS")
    Path(f"/proc/{target.pid}/clear_refs").write_text("5", encoding="ascii")  # begins the peak anew
    for _ in range(rounds):
        _turn(measured, attack, target, other, beside, attacker, seconds)
        advance()
    measured.peak = memory_mib(target.pid, "VmHWM")
    sleep(SETTLE_S)
    measured.after = memory_mib(target.pid, "VmRSS")
    return measured


def _turn(
    measured: Measured,
    attack: Attack,
    target: Target,
    other: Target,
    beside: Callable[[], AbstractContextManager[Waits]],
    attacker: Executor,
    seconds: float,
) -> None:
    strike = partial(strike_for, seconds, attack.strike)
    with beside() as alone:
        sleep(seconds)
    with beside() as floor:
        _, processors = attacker.submit(with_load, partial(strike, other)).result()
    with beside() as burning:
        attacker.submit(burn, seconds, processors).result()
    with beside() as attacked:
        outcomes, processors = attacker.submit(with_load, partial(strike, target)).result()
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
