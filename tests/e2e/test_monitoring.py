"""The shipped dashboard and alerts with a real Prometheus and a real server: make test-monitoring."""

import itertools
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from mnemon import Client, MnemonError

from tests.support.chroma_server import ChromaServer
from tests.support.prometheus import MONITORING, Prometheus, prometheus
from tests.support.server import ServerProcess, server_process, wait_until

pytestmark = pytest.mark.monitoring

METRICS = re.compile(r"shows metrics on (\S+)/metrics")
VARIABLE = re.compile(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)")
FLAGS = ["--metrics-listen", "127.0.0.1:0", "--quotas-per-tenant", "calls_per_second=20,calls_burst=20,records=1000000"]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
WINDOW = {"$__rate_interval": "20s", "$job": "mnemon", "$instance": ".*"}


def promtool(*arguments: str | Path, given: bytes = b"") -> str:
    """What promtool says; it must find nothing wrong."""
    done = subprocess.run(["promtool", *arguments], input=given, capture_output=True, check=False)
    told = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, told
    return told


def expressions() -> list[str]:
    """Those of all panels, with values for their variables."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    for name, value in WINDOW.items():
        found = [each.replace(name, value) for each in found]
    return found


def metrics_address(server: ServerProcess) -> str:
    """Where a server shows its metrics."""
    server.address()
    wait_until(lambda: METRICS.search(server.output))
    match = METRICS.search(server.output)
    assert match is not None
    return match[1]


@contextmanager
def load(address: str) -> Iterator[None]:
    """A little of everything, until the block ends; more than the quota allows."""
    ended, numbers = threading.Event(), itertools.count()

    def work(deed: Any) -> None:
        with Client(address) as client:
            while not ended.is_set():
                with suppress(MnemonError):
                    deed(client)

    def write(client: Client) -> None:
        # A text that was embedded lately would not be embedded again.
        client.remember(f"Ada likes tea number {next(numbers)}.", user="ada")
        client.documents.put("passport", "To renew a passport, bring the old one.")
        client.timeline.add("conversation", "Ada moved to Bern.", user="ada", importance=0.9)
        client.memories.search("tea", user="ada")
        list(client.memories.add_many(["Ada has a boat."]))

    def watch(client: Client) -> None:
        for _ in client.watch():
            if ended.is_set():
                return

    threads = [threading.Thread(target=work, args=(deed,)) for deed in (write, write, watch)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        with Client(address) as client:
            while any(thread.is_alive() for thread in threads):
                with suppress(MnemonError):
                    client.remember("The watcher sees this, and that it is over.")
                threads[-1].join(0.1)


def test_every_panel_and_every_variable_shows_something_under_a_little_load(
    tmp_path: Path, chroma: ChromaServer
) -> None:
    # Only a server with an external index has changes that the index has not seen.
    external = (
        "--knowledge-store-backend",
        "chromadb",
        "--chroma-host",
        chroma.host,
        "--chroma-port",
        str(chroma.port),
    )
    with server_process(tmp_path / "data", *FLAGS, *external) as server:
        target = metrics_address(server)
        with prometheus(tmp_path, target) as asked, load(server.address()):
            left = set(expressions())
            assert len(left) > 40

            def all_shown() -> bool:
                left.difference_update([each for each in left if asked.query(each)])
                return not left

            with suppress(AssertionError):
                wait_until(all_shown)
            assert left == set()
            for variable in DASHBOARD["templating"]["list"][1:]:
                metric, label = VARIABLE.fullmatch(variable["query"]["query"]).groups()
                assert asked.label_values(label, metric) == [{"job": "mnemon", "instance": target}[label]]
            wait_until(lambda: not resting(asked))


def resting(asked: Prometheus) -> set[str]:
    """Of the metrics that this load must move, those that it has not moved."""
    moved = ("rpc_seconds_count", "commit_writes_sum", "embedding_batch_texts_sum", "watch_lag_seconds_count")
    moved += ("index_vectors", "tenant_refused_calls_total", "tenant_records", "tenant_disk_bytes", "vaults_open")
    return {name for name in moved if not sum(asked.query(f"mnemon_{name}").values()) > 0}


def test_every_alert_fires_and_none_does_while_all_is_well() -> None:
    assert "SUCCESS" in promtool("test", "rules", MONITORING / "alerts.test.yml")


def test_the_configuration_and_the_page_are_as_prometheus_wants_them(tmp_path: Path) -> None:
    promtool("check", "config", MONITORING / "prometheus.yml")
    with server_process(tmp_path, *FLAGS) as server:
        page = httpx.get(f"http://{metrics_address(server)}/metrics").content
    assert not promtool("check", "metrics", given=page)


def test_rules_are_evaluated_and_the_alert_about_a_server_that_ended_begins(tmp_path: Path) -> None:
    with server_process(tmp_path / "data", *FLAGS) as server, prometheus(tmp_path, metrics_address(server)) as asked:
        wait_until(lambda: all(rule["health"] == "ok" for rule in asked.rules()))
        assert len(asked.rules()) > 10
        assert {rule["state"] for rule in asked.rules()} == {"inactive"}
        server.end()
        wait_until(lambda: [rule["name"] for rule in asked.rules() if rule["state"] != "inactive"] == ["MnemonDown"])
