"""Envoy with the shipped configuration; only addresses and file names are replaced."""

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import yaml
from grpc import aio

from tests.support.certificates import Authority
from tests.support.ports import HeldPort
from tests.support.repository import ROOT
from tests.support.server import WAIT_S, wait_until

ENVOY = ROOT / ".venv/mesh/bin/envoy"
SHIPPED = ROOT / "docker/envoy"
ORIGIN = "https://app.example.com"
"""The website that the configuration allows."""
NOWHERE = "127.0.0.1:1"


@dataclass(frozen=True)
class Upstream:
    """Where a server is."""

    grpc: str
    http: str = NOWHERE


@dataclass(frozen=True)
class Envoy:
    """A process of Envoy."""

    address: str
    ca: Path
    admin: str
    monitoring: str

    def credentials(self, token: str = "") -> grpc.ChannelCredentials:
        """Those of a channel to it, as a caller with this token."""
        tls = grpc.ssl_channel_credentials(self.ca.read_bytes())
        return grpc.composite_channel_credentials(tls, grpc.access_token_call_credentials(token)) if token else tls

    def channel(self, token: str = "") -> aio.Channel:
        """A channel of gRPC, without retries of its own."""
        return aio.secure_channel(self.address, self.credentials(token), [("grpc.enable_retries", 0)])

    def http(self, token: str = "") -> httpx.AsyncClient:
        """A client of HTTP."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        trust = ssl.create_default_context(cafile=str(self.ca))
        return httpx.AsyncClient(base_url=f"https://{self.address}", verify=trust, headers=headers, timeout=WAIT_S)

    def figure(self, name: str) -> int:
        """A counter or gauge."""
        with urllib.request.urlopen(f"http://{self.admin}/stats?format=json&filter=^{name}$", timeout=WAIT_S) as answer:
            return sum(int(each["value"]) for each in json.load(answer)["stats"] if "value" in each)


def configured(text: str, addresses: Mapping[str, str], folder: Path, ca: Path) -> Any:
    """The shipped configuration with other addresses, by "host:port", and files in another folder."""
    text = text.replace("/etc/envoy/", f"{folder}/").replace("/etc/ssl/certs/ca-certificates.crt", str(ca))
    return _readdressed(yaml.safe_load(text), addresses)


def _readdressed(value: Any, addresses: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_readdressed(each, addresses) for each in value]
    if not isinstance(value, dict):
        return value
    if "socket_address" in value:
        given = value["socket_address"]
        host, _, port = addresses[f"{given['address']}:{given['port_value']}"].rpartition(":")
        return {"socket_address": {"address": host, "port_value": int(port)}}
    return {key: _readdressed(each, addresses) for key, each in value.items()}


def prepare(
    folder: Path, *upstreams: Upstream, login: str, collector: str, more: Mapping[str, str] | None = None
) -> tuple[Path, Envoy, list[HeldPort]]:
    """Writes the configuration and what it names. The ports are Envoy's as long as they are kept.

    Args:
        folder: gets the files.
        upstreams: mnemon-0 and mnemon-1; one of them takes both places.
        login: the identity provider, which answers over TLS as login.example.com, with a certificate of `authority`.
        collector: the collector of traces.
        more: further replacements in the text of the configuration.
    """
    ports = [HeldPort() for _ in range(3)]
    clients, admin, monitoring = (port.address for port in ports)
    addresses = {"0.0.0.0:8443": clients, "127.0.0.1:9901": admin, "0.0.0.0:9902": monitoring}
    for number in range(2):
        upstream = upstreams[number % len(upstreams)]
        addresses |= {f"mnemon-{number}:50051": upstream.grpc, f"mnemon-{number}:8080": upstream.http}
    addresses |= {"login.example.com:443": login, "collector:4317": collector}
    ca = folder / "authority.pem"
    text = (SHIPPED / "envoy.yaml").read_text()
    for old, new in (more or {}).items():
        assert old in text
        text = text.replace(old, new)
    path = folder / f"envoy-{clients.rpartition(':')[2]}.json"
    path.write_text(json.dumps(configured(text, addresses, folder, ca)))
    certificate = (SHIPPED / "certificate.yaml").read_text()
    (folder / "certificate.yaml").write_text(certificate.replace("/etc/tls", f"{folder}/tls"))
    return path, Envoy(clients, ca, admin, monitoring), ports


def certify(folder: Path) -> Authority:
    """An authority, with the certificates of Envoy and of the identity provider."""
    authority = Authority(folder)
    (folder / "tls").mkdir()
    for name, (pem, key) in {
        "tls": authority.issue("envoy", "dns:localhost", "ip:127.0.0.1"),
        "login": authority.issue("login", "dns:login.example.com"),
    }.items():
        target = folder / "tls" if name == "tls" else folder
        pem.rename(target / f"{name}.{'crt' if name == 'tls' else 'pem'}")
        key.rename(target / f"{name}.key")
    return authority


@contextmanager
def envoy(
    folder: Path, *upstreams: Upstream, login: str, collector: str = NOWHERE, more: Mapping[str, str] | None = None
) -> Iterator[Envoy]:
    """Runs Envoy until the block is left. `folder` has been through `certify`."""
    path, described, ports = prepare(folder, *upstreams, login=login, collector=collector, more=more)
    with (folder / "envoy.log").open("ab") as log:
        command = [
            ENVOY,
            "--config-path",
            path,
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "--log-level",
            "warning",
        ]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: process.poll() is not None or _is_ready(described))
            assert process.poll() is None, (folder / "envoy.log").read_text()
            yield described
        finally:
            process.terminate()
            process.wait(WAIT_S)
            del ports


def _is_ready(described: Envoy) -> bool:
    try:
        with urllib.request.urlopen(f"http://{described.monitoring}/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
