"""A call from a browser is one trace: the page, Envoy, the server, and the commit."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.browser import PAGE_S, browsing, chromium, website
from tests.support.envoy import ORIGIN, Upstream, certify, envoy
from tests.support.issuers import SigningKey, key_server, trusting_server
from tests.support.server import until
from tests.support.stubs import BUILD_S, built
from tests.support.trace_collector import collecting

pytestmark = [pytest.mark.mesh, pytest.mark.timeout(BUILD_S)]

KEY = SigningKey("first")
CLAIMS = {"tenant": "", "tenant_claim": '"tenant"', "creates_tenants": "true"}
CALL = "mnemon.v1.MemoryService/CreateMemory"


def kind_of(span: Span) -> str:
    """The name that the server gives it; "ingress" if it is Envoy's."""
    return "ingress" if "upstream_cluster" in {each.key for each in span.attributes} else span.name


async def test_a_call_from_a_browser_is_one_trace_from_the_page_to_the_commit(tmp_path: Path) -> None:
    chromium()
    script = built("browser") / "trace.js"
    page = certify(tmp_path).issue("page", f"dns:{urlsplit(ORIGIN).hostname}")
    (own := tmp_path / "server").mkdir()
    async with collecting() as collector:
        # The server samples nothing by itself: what it sends was begun by the page.
        settings = {"trace_endpoint": collector.endpoint, "trace_sample_ratio": 0.0}
        async with trusting_server(own, KEY, settings=settings, **CLAIMS) as server:
            upstream, traces = Upstream(str(server.server.address)), urlsplit(collector.endpoint).netloc
            given = {"token": KEY.sign(tenant="acme")}
            with (
                key_server(KEY, certificate=(tmp_path / "login.pem", tmp_path / "login.key")) as login,
                envoy(tmp_path, upstream, login=login.address, collector=traces) as front,
                website(script, origin=ORIGIN, certificate=page) as site,
                browsing(site, tmp_path, endpoint=f"https://{front.address}", **given) as browser,
            ):
                await until(lambda: site.has_ended() or browser.poll() is not None, PAGE_S)
                assert site.told[1:] == ["end"], (site.told, (tmp_path / "chromium.log").read_text())
                await until(lambda: {"write", "ingress", CALL} <= {kind_of(span) for span in collector.spans})
    [of_page] = [span for span in site.spans if not span.parent_span_id]
    mine = {kind_of(span): span for span in collector.spans if span.trace_id == of_page.trace_id}
    assert mine.keys() >= {"ingress", CALL, "embed", "write"}
    assert mine["ingress"].parent_span_id == of_page.span_id
    assert mine[CALL].parent_span_id == mine["ingress"].span_id
    assert mine["write"].parent_span_id == mine[CALL].span_id
    # In the order of their ends: the commit, the call, Envoy's answer.
    ends = [mine[each].end_time_unix_nano for each in ("write", CALL, "ingress")]
    assert ends == sorted(ends)
