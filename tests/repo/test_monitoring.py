"""The dashboard and the alerts are complete, and in the form that Grafana and Prometheus expect."""

import json
import re
from collections import Counter
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.repository import ROOT

MONITORING = ROOT / "docker/monitoring"
METRIC = re.compile(r"mnemon_\w+")
COLUMNS = 24


def _text(name: str) -> str:
    return (MONITORING / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return json.loads(_text("dashboard.json"))


def _alerts() -> dict[str, dict[str, Any]]:
    [group] = yaml.safe_load(_text("alerts.yml"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def _documented(row: str) -> set[str]:
    return set(re.findall(row, (ROOT / "server/MONITORING.md").read_text(encoding="utf-8"), re.MULTILINE))


def _strange(given: Any, known: Any, path: str = "") -> list[str]:
    """What of the first is missing or different in the second."""
    if isinstance(given, dict) and isinstance(known, dict):
        return [each for key, value in given.items() for each in _strange(value, known.get(key), f"{path}/{key}")]
    if isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        pairs = enumerate(zip(given, known, strict=True))
        return [each for number, (one, two) in pairs for each in _strange(one, two, f"{path}/{number}")]
    return [] if given == known else [path]


def test_grafana_knows_every_key_of_the_dashboard(dashboard: dict[str, Any]) -> None:
    """Its own model of a dashboard drops what it does not know."""
    register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert _strange(dashboard, read) == []


def test_panels_have_numbers_places_and_queries_of_their_own(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 30
    cells = Counter[tuple[int, int]]()
    for place in (panel["gridPos"] for panel in panels):
        assert place["x"] + place["w"] <= COLUMNS
        cells.update((place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"]))
    assert set(cells.values()) == {1}
    assert len(cells) == COLUMNS * (1 + max(y for _, y in cells)), "there is a hole"
    for panel in panels:
        if panel["type"] != "row":
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) >= 1
            assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]


def test_every_query_is_about_the_chosen_servers_and_data_source(dashboard: dict[str, Any]) -> None:
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert variables == ["datasource", "job", "instance"]
    for target in (target for panel in dashboard["panels"] for target in panel.get("targets", [])):
        assert target["datasource"]["uid"] == "${datasource}"
        selected = re.findall(r"\{([^}]*)\}", target["expr"])
        assert selected and all('job="$job", instance=~"$instance"' in each for each in selected), target
        assert "[" not in target["expr"] or "[$__rate_interval]" in target["expr"]


def test_every_metric_is_on_a_panel_and_every_panel_shows_metrics_that_exist(dashboard: dict[str, Any]) -> None:
    documented = _documented(r"^\| `(mnemon_\w+)` ")
    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in METRIC.findall(shown)} == documented
    alerting = METRIC.findall(" ".join(rule["expr"] for rule in _alerts().values()))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in alerting} <= documented


def test_every_alert_says_what_to_do_is_documented_and_has_a_test() -> None:
    alerts = _alerts()
    assert alerts.keys() == _documented(r"^\| `(Mnemon\w+)` ")
    for name, rule in alerts.items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}, name
    tests = yaml.safe_load(_text("alerts.test.yml"))["tests"]
    assert {test["name"] for test in tests[1:]} == alerts.keys()
    for test in tests[1:]:
        before, after = test["promql_expr_test"]
        assert before["exp_samples"] == []
        assert f'alertname="{test["name"]}"' in after["exp_samples"][0]["labels"]
