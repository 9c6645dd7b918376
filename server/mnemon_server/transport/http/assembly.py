"""Builds the HTTP server from the parts that gRPC has, too."""

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings
from mnemon_server.transport.health import HealthServicer
from mnemon_server.transport.http.application import Application, Page, Pages
from mnemon_server.transport.http.calls import Find, HttpCalls
from mnemon_server.transport.http.cross_origin import CrossOrigin
from mnemon_server.transport.http.description import description, front_page
from mnemon_server.transport.http.intake import Intake
from mnemon_server.transport.http.server import HttpServer
from mnemon_server.transport.interceptors.pipeline import Pipeline
from mnemon_server.transport.options import MARGIN_BYTES


def http_server(settings: Settings, pipeline: Pipeline, find: Find, health: HealthServicer) -> HttpServer | None:
    """The server of HTTP that the settings ask for; None if they ask for none."""
    if not settings.http_listen:
        return None
    address = Address.parse(settings.http_listen)
    intake = Intake(
        pipeline.conversions,
        seconds=settings.request_timeout_s,
        message_bytes_max=(settings.max_message_mib << 20) + MARGIN_BYTES,
    )
    calls = HttpCalls(pipeline, find, intake, write_timeout_s=settings.stream_write_timeout_s)
    pages = {**probes(health), **(description() if _is_described(settings, address) else {})}
    application = Application(
        calls,
        {"/": front_page(health, pages), **pages},
        CrossOrigin(settings.http_origins),
        local_hosts_only=address.is_local and not address.socket_path and not settings.authentication,
    )
    return HttpServer(settings, address, application)


def _is_described(settings: Settings, address: Address) -> bool:
    """Whether the API's description is public, as with reflection."""
    return address.is_local if settings.reflection is None else settings.reflection


def probes(health: HealthServicer) -> Pages:
    """The pages that probes read."""

    async def alive() -> Page:
        return Page(b"ok\n")

    async def ready() -> Page:
        if health.is_serving:
            return Page(b"ok\n")
        return Page(b"not ready\n", code=503)

    return {"/healthz": alive, "/readyz": ready}
