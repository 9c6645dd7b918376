"""The page about monitoring, walked as an operator would: its commands as they are printed, in a checkout."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mnemon import Client

from tests.support.documents import blocks
from tests.support.ports import HeldPort
from tests.support.prometheus import MONITORING
from tests.support.repository import ROOT
from tests.support.server import WAIT_S, wait_until

pytestmark = pytest.mark.monitoring

DOCUMENT = ROOT / "server" / "MONITORING.md"
CONFIGURATION = "docker/monitoring/prometheus.yml"
METRICS, PROMETHEUS = "127.0.0.1:9464", "127.0.0.1:9091"
SERVES = ("mnemon-server serve", "prometheus ")


def replaced(text: str, addresses: Mapping[str, str]) -> str:
    """The text with other addresses in the place of the printed ones, which may be taken here."""
    for printed, own in addresses.items():
        text = text.replace(printed, own)
    return text


@contextmanager
def running(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A command that serves until the block ends."""
    with (folder / "said").open("a") as said:
        process = subprocess.Popen(shlex.split(command), cwd=folder, env=environment, stdout=said, stderr=said)
    try:
        yield
        assert process.poll() is None, (folder / "said").read_text(encoding="utf-8")
    finally:
        process.terminate()
        process.wait(WAIT_S)


def answer(url: str) -> Any:
    """What Prometheus answers; nothing before it is ready, until when it does not answer, or has no JSON."""
    try:
        found = httpx.get(url)
    except httpx.TransportError:
        return {}
    return {} if found.status_code == httpx.codes.SERVICE_UNAVAILABLE else found.json()


def test_after_the_commands_of_the_page_prometheus_has_the_server_as_up_and_the_alerts(tmp_path: Path) -> None:
    shutil.copytree(MONITORING, tmp_path / "docker/monitoring")
    ports = HeldPort(), HeldPort(), HeldPort()
    addresses = {METRICS: ports[0].address, PROMETHEUS: ports[1].address}
    configuration = tmp_path / CONFIGURATION
    configuration.write_text(replaced(configuration.read_text(encoding="utf-8"), addresses), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MNEMON_")} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "MNEMON_LISTEN": ports[2].address,
        "MNEMON_EMBEDDING_MODEL": "hashing",
    }
    commands = [line for block in blocks(DOCUMENT, ["sh"]) for line in block.text.splitlines()]
    assert sorted(command.split()[0] for command in commands) == ["mnemon-server", "prometheus", "promtool", "promtool"]
    with ExitStack() as stack:
        for command in commands:
            own = replaced(command, addresses)
            if command.startswith(SERVES):
                stack.enter_context(running(own, tmp_path, environment))
            else:
                subprocess.run(shlex.split(own), cwd=tmp_path, env=environment, check=True)
        prometheus = f"http://{addresses[PROMETHEUS]}"

        def targets() -> list[tuple[str, str]]:
            found = answer(f"{prometheus}/api/v1/targets").get("data", {}).get("activeTargets", [])
            return [(each["labels"]["instance"], each["health"]) for each in found]

        wait_until(lambda: targets() == [(addresses[METRICS], "up")], WAIT_S)
        names = [
            rule["name"] for group in answer(f"{prometheus}/api/v1/rules")["data"]["groups"] for rule in group["rules"]
        ]
        documented = [
            line.split("`")[1]
            for line in DOCUMENT.read_text(encoding="utf-8").splitlines()
            if line.startswith("| `Mnemon")
        ]
        assert sorted(names) == sorted(documented)
        with Client(ports[2].address) as client:
            client.remember("Ada likes tea.")
        count = {"query": 'sum(mnemon_rpc_seconds_count{job="mnemon"})'}
        wait_until(lambda: answer(f"{prometheus}/api/v1/query?{httpx.QueryParams(count)}")["data"]["result"], WAIT_S)
