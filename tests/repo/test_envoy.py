"""The shipped configuration of Envoy knows every method, and every server everywhere."""

import re
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor_pb2 import MethodOptions
from mnemon_server.services.access.keys import new_key_id, new_secret

from tests.support.repository import ROOT
from tests.support.rpcs import rpcs

CONFIGURATION = yaml.safe_load((ROOT / "docker/envoy/envoy.yaml").read_text())
ALWAYS_SAFE = {"connect-failure", "refused-stream", "reset-before-request", "retriable-headers"}


def routes() -> list[Any]:
    """Those of clients, in order."""
    [manager] = CONFIGURATION["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
    [host] = manager["typed_config"]["route_config"]["virtual_hosts"]
    return host["routes"]


def route_of(path: str, content_type: str) -> Any:
    """The action of the first route that matches, as Envoy chooses it."""

    def matches(match: Any) -> bool:
        by_path = path.startswith(match["prefix"]) if "prefix" in match else _fits(match["safe_regex"], path)
        kinds = [header["string_match"]["safe_regex"] for header in match.get("headers", ())]
        return bool(by_path and all(_fits(kind, content_type) for kind in kinds))

    return next(each["route"] for each in routes() if matches(each["match"]))


def _fits(expression: Any, text: str) -> bool:
    return re.fullmatch(expression["regex"], text) is not None


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [("application/grpc", ""), ("application/grpc-web-text", ""), ("application/json", "-http")],
)
def test_a_method_is_sent_again_and_ended_as_the_descriptors_allow(content_type: str, kind: str) -> None:
    for method in (rpc.method for rpc in rpcs()):
        streams = method.client_streaming or method.server_streaming
        is_read = method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS and not streams
        route = route_of(f"/{method.containing_service.full_name}/{method.name}", content_type)
        assert set(route["retry_policy"]["retry_on"].split(",")) - ALWAYS_SAFE == (
            {"reset", "cancelled"} if is_read else set()
        ), method.full_name
        assert ("max_stream_duration" in route) is not streams, method.full_name
        names = [cluster["name"] for cluster in route["weighted_clusters"]["clusters"]]
        assert names == [f"mnemon-{number}{kind}" for number in range(len(names))]


def test_the_slots_of_the_servers_are_all_slots_and_the_same_over_grpc_and_http() -> None:
    chosen = [route["route"]["weighted_clusters"] for route in routes() if "route" in route]
    slots = {tuple(each["weight"] for each in one["clusters"]) for one in chosen}
    assert len(slots) == 1 and sum(slots.pop()) == 100
    assert all(one["use_hash_policy"] for one in chosen)
    named = {cluster["name"] for one in chosen for cluster in one["clusters"]}
    defined = {cluster["name"] for cluster in CONFIGURATION["static_resources"]["clusters"]}
    assert {name for name in defined if name.startswith("mnemon-")} == named


@pytest.mark.parametrize("tenant", ["acme", "a", "default-2_b", "x" * 63])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
def test_the_tenant_of_an_api_key_decides_where_its_calls_go(tenant: str, scheme: str) -> None:
    policies = [route["route"]["hash_policy"] for route in routes() if "route" in route]
    assert all(policy == policies[0] for policy in policies)
    by_token, by_key = policies[0]
    assert (by_token["header"]["header_name"], by_token["terminal"]) == ("x-mnemon-tenant", True)
    rewrite = by_key["header"]["regex_rewrite"]
    shown = f"{scheme} {new_secret(tenant, new_key_id()).text}"
    assert re.sub(rewrite["pattern"]["regex"], rewrite["substitution"], shown) == tenant
    assert _is_verified_by_the_server_alone(shown)


def test_envoy_takes_no_token_for_an_api_key() -> None:
    assert not _is_verified_by_the_server_alone("Bearer eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl")


def _is_verified_by_the_server_alone(header: str) -> bool:
    [manager] = CONFIGURATION["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
    filters = {each["name"]: each["typed_config"] for each in manager["typed_config"]["http_filters"]}
    [keys, others] = filters["envoy.filters.http.jwt_authn"]["rules"]
    [shown] = keys["match"]["headers"]
    assert "requires" not in keys and "requires" in others and shown["name"] == "authorization"
    return _fits(shown["string_match"]["safe_regex"], header)
