"""How one attack is measured: a bystander alone and beside it, and the memory of the server."""

import statistics
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from tests.bench.attacks.bystander import bystander
from tests.bench.attacks.calls import Outcomes, Strike, Target

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
    floor_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    failed: int = 0
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    outcomes: Outcomes = field(default_factory=Outcomes)

    def row(self, name: str) -> str:
        """A line of the table."""
        alone, floor, beside = map(statistics.median, (self.alone_ms, self.floor_ms, self.beside_ms))
        told = ", ".join(f"{count:,} {code}" for code, count in sorted(self.outcomes.items()) if count)
        ratios = f"{beside / alone:.1f} | {beside / floor:.1f}"
        waits = f"{alone:.1f} | {floor:.1f} | {beside:.1f} | {ratios} | {self.failed}"
        return f"| {name} | {waits} | {self.before:.0f} | {self.peak:.0f} | {self.after:.0f} | {told} |"


HEAD = """\
| attack | p99 alone, ms | floor | attacked | to alone | to floor | failed | MiB before | peak | after | its calls |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def measure(
    attack: Attack,
    target: Target,
    other: Target,
    attacker: Executor,
    *,
    rounds: int,
    seconds: float,
    advance: Callable[[], None],
) -> Measured:
    """The bystander of a server alone, beside the attack on another server, and beside the same on its own, in turns.

    Beside the other one, it loses what the machine gives to attacker and attacked, and nothing else: that is the floor.
    """
    attack.prepare(target)
    attack.prepare(other)
    measured = Measured()
    with bystander(target.address):
        sleep(1.0)  # opens what is opened at the first call
    measured.before = memory_mib(target.pid, "VmRSS")
    Path(f"/proc/{target.pid}/clear_refs").write_text("5", encoding="ascii")  # begins the peak anew
    for _ in range(rounds):
        with bystander(target.address) as alone:
            sleep(seconds)
        measured.alone_ms.append(alone.percentile(99))
        with bystander(target.address) as floor:
            attacker.submit(strike_for, seconds, attack.strike, other).result()
        measured.floor_ms.append(floor.percentile(99))
        with bystander(target.address) as beside:
            measured.outcomes += attacker.submit(strike_for, seconds, attack.strike, target).result()
        measured.beside_ms.append(beside.percentile(99))
        measured.failed += beside.failed
        advance()
    measured.peak = memory_mib(target.pid, "VmHWM")
    sleep(SETTLE_S)
    measured.after = memory_mib(target.pid, "VmRSS")
    return measured


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
