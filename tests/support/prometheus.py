"""A Prometheus of its own, with the configuration that is shipped, on a free port of loopback."""

import math
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.ports import HeldPort
from tests.support.repository import ROOT
from tests.support.server import WAIT_S, wait_until

MONITORING = ROOT / "docker/monitoring"
SHIPPED_TARGET, SHIPPED_INTERVAL, INTERVAL = "127.0.0.1:9464", "15s", "1s"


class Prometheus:
    """Asks a running Prometheus."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> dict[str, float]:
        """The series that an expression returns now, with the numbers that are any: by their labels."""
        found = self._get("/api/v1/query", {"query": expression})["result"]
        values = {str(each["metric"]): float(each["value"][1]) for each in found}
        return {labels: value for labels, value in values.items() if math.isfinite(value)}

    def label_values(self, label: str, metric: str) -> list[str]:
        """The values that a label of a metric has."""
        found: list[str] = self._get(f"/api/v1/label/{label}/values", {"match[]": metric})
        return found

    def rules(self) -> list[dict[str, Any]]:
        """The alert rules, with their state."""
        return [rule for group in self._get("/api/v1/rules", {})["groups"] for rule in group["rules"]]

    def _get(self, path: str, parameters: dict[str, str]) -> Any:
        answer = self._client.get(path, params=parameters).json()
        assert answer["status"] == "success", (answer, parameters)
        return answer["data"]


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Prometheus scrapes a server every second, as the shipped configuration says apart from that."""
    for file in MONITORING.glob("*.yml"):
        text = file.read_text(encoding="utf-8")
        text = text.replace(SHIPPED_TARGET, target).replace(f"interval: {SHIPPED_INTERVAL}", f"interval: {INTERVAL}")
        (folder / file.name).write_text(text, encoding="utf-8")
    assert target in (folder / "prometheus.yml").read_text(encoding="utf-8")
    port = HeldPort()
    command = ["prometheus", "--config.file", folder / "prometheus.yml", "--storage.tsdb.path", folder / "series"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--web.listen-address", port.address], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{port.address}", timeout=WAIT_S) as client:
            asked = Prometheus(client)
            wait_until(lambda: asked.is_ready() or process.poll() is not None)
            assert process.poll() is None, (folder / "log").read_text()
            yield asked
    finally:
        process.terminate()
        process.wait(WAIT_S)
