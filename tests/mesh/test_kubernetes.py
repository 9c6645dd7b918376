"""The files for Kubernetes: valid, hardened, and about servers and Envoy as they are."""

import json
import re
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repository import ROOT
from tests.support.server import WAIT_S, ServerProcess, run_command

pytestmark = pytest.mark.mesh

BIN = ROOT / ".venv/mesh/bin"
CHART = ROOT / "docker/helm/mnemon"
OLDEST, NEWEST = "1.30", "1.37"
"""The oldest version has the pause before a container is stopped (`preStop.sleep`)."""
HASH = re.compile(r"-[0-9a-z]{10}$")
"""What kustomize adds to the name of a ConfigMap."""


def output(*command: Any) -> str:
    """What a command prints."""
    ran = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@cache
def kustomized() -> str:
    return output(BIN / "kubectl", "kustomize", ROOT / "docker/kubernetes")


@cache
def templated(*arguments: str) -> str:
    return output(BIN / "helm", "template", "mnemon", CHART, "--namespace", "mnemon", *arguments)


FORMS = {"kustomize": kustomized, "helm": templated}


def objects(text: str) -> dict[str, Any]:
    """Each by kind and name."""
    return {
        f"{each['kind']}/{HASH.sub('', each['metadata']['name'])}": each for each in yaml.safe_load_all(text) if each
    }


def validated(text: str, version: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (path := folder / "objects.yaml").write_text(text)
    command = [BIN / "kubernetes-validate", "--strict", "-k", version, path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("form", FORMS)
def test_every_object_fits_its_schema(form: str, version: str, tmp_path: Path) -> None:
    found = validated(FORMS[form](), version, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("right", "wrong"), [("readOnlyRootFilesystem: true", "readOnlyRoot: true"), ("replicas: 2", "replicas: two")]
)
def test_an_object_that_does_not_fit_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    assert right in kustomized()
    assert validated(kustomized().replace(right, wrong), NEWEST, tmp_path).returncode != 0


def test_the_chart_says_what_kustomize_says() -> None:
    charted, plain = objects(templated()), objects(kustomized())
    assert charted.keys() == plain.keys() - {"Namespace/mnemon"}
    for name, each in charted.items():
        assert likened(each) == likened(plain[name]), name


def likened(value: Any) -> Any:
    """Removes the tools' labels and annotations, hashes in names, and defaults."""
    if isinstance(value, dict):
        value = {key: likened(each) for key, each in value.items() if key not in ("annotations", "namespace")}
        if "labels" in value and isinstance(value["labels"], dict):
            value["labels"].pop("app.kubernetes.io/part-of", None)
        for key, default in (("type", "ClusterIP"), ("imagePullPolicy", "IfNotPresent"), ("labels", {})):
            if value.get(key) == default:
                del value[key]
        return {key: _data(key, each) for key, each in value.items()}
    if isinstance(value, list):
        return [likened(each) for each in value]
    return HASH.sub("", value) if isinstance(value, str) and "\n" not in value else value


def _data(key: str, value: Any) -> Any:
    if key == "identities.toml":
        return tomllib.loads(value)
    if key in ("envoy.yaml", "certificate.yaml"):
        return yaml.safe_load(value)
    return value


@pytest.mark.parametrize("form", FORMS)
def test_containers_can_do_no_more_than_they_must(form: str) -> None:
    pods = [
        each["spec"]["template"]["spec"]
        for each in objects(FORMS[form]()).values()
        if "template" in each.get("spec", {})
    ]
    assert len(pods) == 2
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (
                container["resources"]["requests"].keys() == {"cpu", "memory"}
                and "memory" in container["resources"]["limits"]
            )
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


def test_no_secret_is_in_the_files() -> None:
    made = objects(kustomized())
    assert not [name for name in made if name.startswith("Secret/")]
    [secret] = [each["secret"] for each in volumes(made["Deployment/envoy"]) if "secret" in each]
    assert secret["secretName"] == "envoy-tls"


def volumes(workload: Any) -> list[Any]:
    return workload["spec"]["template"]["spec"]["volumes"]


def test_what_selects_pods_finds_them_and_their_ports() -> None:
    made = objects(kustomized())
    ports, pods = {}, {}
    for name in ("StatefulSet/mnemon", "Deployment/envoy"):
        template = made[name]["spec"]["template"]
        app = template["metadata"]["labels"]["app.kubernetes.io/name"]
        ports[app] = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0]["ports"]}
        pods[app] = {**template["metadata"]["labels"]}
    stateful = made["StatefulSet/mnemon"]["spec"]
    names = {f"mnemon-{number}" for number in range(stateful["replicas"])}
    assert {name for name in made if re.match("Service/mnemon-", name)} == {f"Service/{name}" for name in names}
    assert f"Service/{stateful['serviceName']}" in made
    for name, each in made.items():
        selector = each.get("spec", {}).get("selector") or each.get("spec", {}).get("podSelector") or {}
        labels = dict(selector.get("matchLabels", selector))
        if pod := labels.pop("statefulset.kubernetes.io/pod-name", None):
            assert pod == each["metadata"]["name"] and pod in names
        if labels:
            app = labels["app.kubernetes.io/name"]
            assert labels.items() <= pods[app].items(), name
            targets = (
                [port["targetPort"] for port in each["spec"].get("ports", ())] if each["kind"] == "Service" else []
            )
            assert set(targets) <= ports[app].keys(), name
            opened = [port["port"] for rule in each["spec"].get("ingress", ()) for port in rule["ports"]]
            assert set(opened) <= set(ports[app].values()), name


def test_envoy_calls_the_services_and_the_policies_let_it() -> None:
    made = objects(kustomized())
    configuration = yaml.safe_load(made["ConfigMap/envoy"]["data"]["envoy.yaml"])
    found = json.dumps(configuration["static_resources"]["clusters"])
    called = set(re.findall(r'"address": "(mnemon-\d)", "port_value": (\d+)', found))
    offered = {
        (each["metadata"]["name"], str(port["port"]))
        for name, each in made.items()
        if re.match(r"Service/mnemon-\d", name)
        for port in each["spec"]["ports"]
    }
    assert called == offered
    for policy, rule in (("mnemon", "ingress"), ("envoy", "egress")):
        allowed = [port["port"] for each in made[f"NetworkPolicy/{policy}"]["spec"][rule] for port in each["ports"]]
        assert {int(port) for _, port in called} <= set(allowed)


@pytest.fixture(name="pod")
def _pod(tmp_path: Path) -> Iterator[Any]:
    """A server with the arguments, settings and files of its pod; only addresses and folders are replaced."""
    made = objects(kustomized())
    [container] = made["StatefulSet/mnemon"]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "identities.toml").write_text(made["ConfigMap/identities"]["data"]["identities.toml"])
    folders = {"/etc/mnemon": str(tmp_path), "/data/mnemon": str(tmp_path / "data")}
    environment = {name: folders.get(value, value) for name, value in made["ConfigMap/mnemon"]["data"].items()}
    environment["MNEMON_IDENTITY_FILE"] = str(tmp_path / "identities.toml")
    assert container["args"][0] == "serve"
    flags = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", flag) for flag in container["args"][1:]]
    server = ServerProcess(tmp_path / "data", *flags, environment=environment)
    yield server, container
    server.end()


def test_a_pod_starts_and_answers_its_probes(pod: Any) -> None:
    server, container = pod
    address, http = server.address(), server.http_address()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        ran = run_command("health", "--address", address, "--service", container[probe]["grpc"]["service"])
        assert ran.returncode == 0, ran.stderr
    with urllib.request.urlopen(f"http://{http}/readyz", timeout=WAIT_S) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("envoy.replicas=0", "replicas"),
        ("login.roles.staff=owner", "staff"),
        ("settings.LISTEN=x", "LISTEN"),
        ("origin=app.example.com", "origin"),
        ("unknown=1", "unknown"),
    ],
)
def test_the_chart_refuses_values_that_cannot_work(wrong: str, said: str) -> None:
    command = [str(BIN / "helm"), "template", "mnemon", str(CHART), "--set", wrong]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode != 0 and said in ran.stderr


def test_the_chart_names_your_identity_provider_everywhere() -> None:
    given = {
        "login.host": "id.acme.test",
        "login.issuer": "https://id.acme.test/realm",
        "login.jwksPath": "/realm/keys",
        "login.audience": "memory",
        "login.tenantClaim": "org",
        "origin": "https://acme.test",
        "envoy.tlsSecret": "acme-tls",
    }
    text = templated(*(part for pair in given.items() for part in ("--set", "=".join(pair))))
    assert not re.findall(r"login\.example\.com|app\.example\.com|well-known|envoy-tls", text)
    configuration = json.dumps(yaml.safe_load(objects(text)["ConfigMap/envoy"]["data"]["envoy.yaml"]))
    for value in (
        '"https://id.acme.test/realm"',
        "https://id.acme.test/realm/keys",
        '["memory"]',
        '"claim_name": "org"',
    ):
        assert value in configuration, value


def test_the_chart_passes_helms_own_checks() -> None:
    assert "0 chart(s) failed" in output(BIN / "helm", "lint", "--strict", CHART)
