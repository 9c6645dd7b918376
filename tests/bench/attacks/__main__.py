"""A bystander beside each attack, and what the server's memory does meanwhile, as a table.

python -m tests.bench.attacks [--rounds 3] [--seconds 5] [--only WORD]... [--tenants]

Each attack has a server of its own. In turns, a bystander calls alone, beside the same attack on another server of this
machine, beside a process that only computes, for as much processor time as the attacker took, and beside the attack on
its own, each for as long; if the attack is below gRPC, also as the caller of a bare server that is attacked. Told are
the medians over the rounds, the server's memory before, at its peak, and ten seconds after the last, and how many
processors the attacker used.
The attacker has a process of its own, at the lowest priority: on a machine of its own it would take no time of others.
With --tenants, attacker and bystander are the administrators of two tenants.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import click
from mnemon_server.domain.access import Role
from rich.console import Console
from rich.progress import Progress

from tests.bench.attacks import calls, frames, web
from tests.bench.attacks.calls import Caller, Target
from tests.bench.attacks.measuring import HEAD, Attack, Servers, measure
from tests.bench.machine import describe
from tests.bench.processes import EchoServer, MnemonServer, free_address
from tests.bench.tenants import create_keys

SLOW_S = 20.0
TOOLS = """
[[tool]]
name = "slow"
description = "Answers late."
parameters = {{ type = "object" }}
http = "http://127.0.0.1:{port}/"
timeout_s = 60

[[tool]]
name = "picky"
description = "Takes a text of one letter."
parameters = {{ type = "object", properties = {{ text = {{ type = "string", pattern = "^(a+)+$" }} }} }}
http = "http://127.0.0.1:{port}/"
"""


def _facts(content: object, count: int) -> Callable[[Target], None]:
    return lambda target: calls.store_large_facts(target, content, count)


ATTACKS = (
    Attack(
        "BatchGetFacts, one text of 1 MB 1,000 times", calls.get_one_fact_a_thousand_times, _facts("x" * calls.MB, 1)
    ),
    Attack("the same, a value of 99,000 numbers", calls.get_one_fact_a_thousand_times, _facts([1] * 99_000, 1)),
    Attack("the same, a value of 99,000 empty lists", calls.get_one_fact_a_thousand_times, _facts([[]] * 99_000, 1)),
    Attack("SearchFacts that find 100 MB, 4 at once", calls.search_large_facts, _facts("y" * calls.MB, 100)),
    Attack("ExecuteText with 64 searches for 12 MB", calls.execute_many_searches, _facts("y" * calls.MB, 12)),
    Attack("200 watchers that do not read", calls.watch_without_reading, calls.store_large_documents),
    Attack("30 unfinished messages of 30 MiB", frames.leave_messages_unfinished, below=True),
    Attack("520 streams on one connection", calls.take_every_stream),
    Attack("520 calls of a slow tool", calls.call_a_slow_tool),
    Attack("a pattern that backtracks", calls.match_a_hostile_pattern),
    Attack("messages of 4 MB of small parts", calls.send_wide_messages),
    Attack("texts of 1 MB of broken calls", calls.parse_small_objects),
    Attack("imports without room to count on", calls.import_figures_without_room),
    Attack("forged page tokens", calls.forge_page_tokens),
    Attack("20,000 streams reset as they begin", frames.reset_streams, below=True),
    Attack("HTTP: 500 headers that never end", web.send_headers_slowly),
    Attack("HTTP: 200 bodies of 2 MiB that never end", web.leave_bodies_unfinished),
    Attack("HTTP: 3,000 connections", web.hold_connections),
    Attack("HTTP: headers of a megabyte", web.send_huge_headers),
    Attack("HTTP: JSON of 8 MiB", web.send_oversized_json),
    Attack("HTTP: deep and wide JSON of 2 MiB", web.send_deep_and_wide_json),
    Attack("HTTP: a mebibyte in chunks of a byte", web.send_tiny_chunks),
    Attack("HTTP: gzip of 64 MiB, and of nearly 2", web.send_bombs),
    Attack("HTTP: frames that lie about their length", web.lie_about_frames),
    Attack("HTTP: 10,000 requests at once", web.pipeline_requests),
    Attack("HTTP: 200 readers of events that do not read", web.leave_events_unread, calls.store_large_documents),
)


@contextmanager
def slow_endpoint() -> Iterator[int]:
    """An operator's endpoint on loopback that answers late; yields its port."""
    ended = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            ended.wait(SLOW_S)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            ended.set()
            server.shutdown()


class Serving(NamedTuple):
    """A server with its callers."""

    target: Target
    caller: Caller
    """The bystander."""


@contextmanager
def serving(*, tenants: bool = False) -> Iterator[Serving]:
    """A server with default settings, two tools of an operator's, and, if wanted, a tenant for each of the callers."""
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as name, slow_endpoint() as port:
        folder, http = Path(name), free_address()
        tools = folder / "tools.toml"
        tools.write_text(TOOLS.format(port=port), encoding="utf-8")
        flags = ["--embedding-model", "hashing", "--tools-file", str(tools)]
        flags += ["--tool-endpoints-allowed", f"127.0.0.1:{port}", "--http-listen", http]
        attacker = bystander = ""
        if tenants:
            attacker, bystander = asyncio.run(create_keys(folder / "data", 2, Role.ADMIN))
            flags += ["--authentication", "api_key"]
        server = MnemonServer(folder, *flags)
        try:
            yield Serving(Target(server.address, attacker, server.pid, http), Caller(server.address, bystander))
        finally:
            server.kill()


@contextmanager
def bare_server() -> Iterator[Target]:
    """A server of the runtime that does nothing but answer."""
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as name:
        server = EchoServer(Path(name))
        try:
            yield Target(server.address, pid=server.pid)
        finally:
            server.kill()


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, help="Turns of each attack.")
@click.option("--seconds", default=5.0, show_default=True, help="How long a turn is.")
@click.option("--only", multiple=True, help="Attacks whose name has this in it; may be given several times.")
@click.option("--tenants", is_flag=True, help="Attacker and bystander are tenants with keys of their own.")
def main(rounds: int, seconds: float, only: tuple[str, ...], *, tenants: bool) -> None:
    """Prints the table."""
    chosen = [attack for attack in ATTACKS if not only or any(word in attack.name for word in only)]
    print(f"{describe()}\n\n{HEAD}")
    fresh = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    with (
        Progress(console=Console(file=sys.stderr)) as progress,
        ProcessPoolExecutor(1, mp_context=fresh, initializer=os.nice, initargs=(19,)) as attacker,
    ):
        attacker.submit(calls.struct).result()  # starts its process, and imports what the attacks need
        task = progress.add_task("attacks", total=len(chosen) * rounds)
        for attack in chosen:
            progress.update(task, description=attack.name)
            with (
                serving(tenants=tenants) as (target, caller),
                serving(tenants=tenants) as (other, _),
                bare_server() as bare,
            ):
                measured = measure(
                    attack,
                    Servers(target, other, bare, caller),
                    attacker,
                    rounds=rounds,
                    seconds=seconds,
                    advance=lambda: progress.advance(task),
                )
            print(measured.row(attack.name), flush=True)


if __name__ == "__main__":
    main()
