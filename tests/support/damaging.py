"""Flips one random bit in each of many copies of a vault: no answer may silently differ.

python -m tests.support.damaging --rounds 1000 [--encrypted] [--repair]

Half of the copies are of a vault that was closed, half of one that was killed before anything left its write-ahead
log. Each kind of file is hit as often as any other. A server opens the copy, and answers queries about records of every
kind, after `mnemon-server repair` if that is asked for. The outcome of a copy is the worst of its answers:

same     every answer equals the undamaged vault's: the bit meant nothing, or what it damaged was repaired
refused  answers were errors, which say that the data is damaged, and where
shut     the vault was not opened, and the error says the same
lost     answers about events differ, and the status of the timeline says which events are lost
other    anything else
"""

import asyncio
import os
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import mnemon
from mnemon import AsyncClient
from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys, parse_master_keys
from mnemon_server.engines.sqlite.pages.database import MODE_READ, connect
from mnemon_server.engines.sqlite.pages.mark import read_mark, stored_commits
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.logs import configure_logging

from tests.support.full_vault import answers, differences, fill
from tests.support.server import eventually, server_process, whole_server
from tests.support.server_command import run

SETTINGS: dict[str, Any] = {"timeline_segment_max_events": 8, "erasure_delay_s": 600.0}
"""Several segments, and nothing leaves the log by itself."""
MASTER_KEY = "5e" * 32
FLAGS = ("--knowledge-store-backend", "local", "--timeline-segment-max-events", "8", "--erasure-delay-s", "600")
VAULT = Path("tenants/default")
OUTCOMES = ("same", "refused", "shut", "lost", "other")
NAMES = ("records.db", "records.mark", "vault.key", ".segment", "text.db", "is damaged", "are damaged")
"""One of these is in every error about damage."""


async def make(folder: Path) -> dict[str, Path]:
    """A closed vault and a killed one."""
    environment = {"MNEMON_MASTER_KEY": SETTINGS.get("master_key", "")}
    with server_process(folder / "killed", *FLAGS, environment=environment) as server:
        async with AsyncClient(await asyncio.to_thread(server.address)) as client:
            await fill(client)
            await eventually(lambda: _is_marked(folder / "killed" / VAULT))
        # The block ends with a kill.
    shutil.copytree(folder / "killed", folder / "closed")
    async with opened(folder / "closed"):
        pass
    return {"closed": folder / "closed", "killed": folder / "killed"}


async def _is_marked(vault: Path) -> bool:
    keys = VaultKeyFile(vault, master_keys())
    key = keys.find()
    with closing(connect(vault / "records.db", keys, flags=MODE_READ)) as connection:
        return key is not None and read_mark(vault, key) == (stored_commits(connection), True)


def master_keys() -> MasterKeys:
    """Those of the trial."""
    return parse_master_keys(MASTER_KEY, "the trial") if "master_key" in SETTINGS else NO_MASTER_KEYS


def opened(folder: Path) -> Any:
    """A server on a folder."""
    return whole_server(folder, **SETTINGS)


def kinds_of(folder: Path) -> dict[str, list[Path]]:
    """The files of a data folder, relative to it, by kind."""
    kinds = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = path.relative_to(folder)
            kinds[path.suffix if path.suffix in {".segment", ".graph"} else name.name].append(name)
    return kinds


def flip(path: Path, rng: random.Random) -> int:
    """Flips a random bit; returns the place of its byte."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return place


async def outcome(folder: Path, expected: dict[str, Any]) -> tuple[str, str]:
    """The outcome of a folder, and what explains it."""
    try:
        async with opened(folder) as server, AsyncClient(str(server.server.address)) as client:
            return await _compared(client, expected)
    except MnemonError as error:
        return ("shut" if any(name in str(error) for name in NAMES) else "other"), str(error)


async def _compared(client: AsyncClient, expected: dict[str, Any]) -> tuple[str, str]:
    try:
        found = await answers(client)
    except mnemon.MnemonError as error:
        return ("refused" if isinstance(error, mnemon.RecordDamagedError) else "other"), str(error)
    different = list(differences(expected, found))
    if not different:
        return "same", ""
    status = await client.timeline.status()
    about_events = all(line.startswith((".event", ".summary", ".window", ".tool")) for line in different)
    return ("lost" if status.lost and about_events else "other"), different[0]


async def trial(rounds: int, seed: int, *, repaired: bool, only: str = "") -> Counter[tuple[str, str]]:
    """The number of copies by kind of file and outcome; prints those that gave another answer."""
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        sources = await make(Path(name))
        reference = shutil.copytree(sources["closed"], Path(name) / "reference")
        async with opened(reference) as server, AsyncClient(str(server.server.address)) as client:
            expected = await answers(client)
        for number in range(rounds):
            rng = random.Random(f"{seed}-{number}")
            state = ("closed", "killed")[number % 2]
            kinds = kinds_of(sources[state])
            kind = only or rng.choice(sorted(kinds))
            copy = shutil.copytree(sources[state], Path(name) / "copy")
            path = rng.choice(kinds[kind])
            place = flip(copy / path, rng)
            if repaired:
                await asyncio.to_thread(run, "repair", "--data-dir", copy)
            found, why = await outcome(copy, expected)
            counts[kind, found] += 1
            if found == "other":
                print(f"round {number} of seed {seed}: {state} {path}, byte {place:,}: {why}", flush=True)  # noqa: T201
            shutil.rmtree(copy)
    return counts


@click.command()
@click.option("--rounds", default=1_000, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Other copies and other bits for each seed.")
@click.option("--encrypted", is_flag=True, help="Gives the vault a master key.")
@click.option("--only", default="", help="Damages this file alone, such as records.db.")
@click.option("--repair", is_flag=True, help="Repairs each copy before it is opened.")
def main(rounds: int, seed: int, only: str, *, encrypted: bool, repair: bool) -> None:
    """Flips one random bit in each of many copies of a vault."""
    if encrypted:
        SETTINGS["master_key"] = os.environ["MNEMON_MASTER_KEY"] = MASTER_KEY
    configure_logging(log_format="console", level="critical")
    counts = asyncio.run(trial(rounds, seed, repaired=repair, only=only))
    click.echo(f"{'file':24}" + "".join(f"{name:>10}" for name in OUTCOMES))
    for kind in sorted({kind for kind, _ in counts}):
        click.echo(f"{kind:24}" + "".join(f"{counts[kind, name]:>10,}" for name in OUTCOMES))
    totals = [sum(count for (_, found), count in counts.items() if found == name) for name in OUTCOMES]
    click.echo(f"{'all':24}" + "".join(f"{total:>10,}" for total in totals))
    sys.exit(1 if totals[-1] else 0)


if __name__ == "__main__":
    main()
