"""Serves the page of metrics on an address of its own: it names tenants, and so is not for everybody who may call."""

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings
from mnemon_server.services.shared.accounts import Accounts
from mnemon_server.services.vaults import VaultPool
from mnemon_server.transport.health import HealthServicer
from mnemon_server.transport.http.application import Application, Page
from mnemon_server.transport.http.assembly import probes
from mnemon_server.transport.http.cross_origin import CrossOrigin
from mnemon_server.transport.http.server import HttpServer
from mnemon_server.transport.interceptors.limiter import Limiter
from mnemon_server.transport.interceptors.stream_writer import StreamWriter
from mnemon_server.transport.metrics.call_figures import CallFigures
from mnemon_server.transport.metrics.page import CONTENT_TYPE, MetricsPage


class MetricsServer(HttpServer):
    """An HTTP server with the page and the probes, and nothing else."""

    def __init__(
        self,
        settings: Settings,
        *,
        health: HealthServicer,
        accounts: Accounts,
        figures: CallFigures,
        limiter: Limiter,
        streams: StreamWriter,
    ) -> None:
        """Binds nothing yet. `attach` gives it the vaults; until then the page has only what concerns calls."""
        self._page = MetricsPage(
            figures, accounts, calls=lambda: limiter.calls_in_work, streams=lambda: streams.open_count
        )
        address = Address.parse(settings.metrics_listen)
        application = Application(
            None,
            {**probes(health), "/metrics": self._show},
            CrossOrigin(()),
            local_hosts_only=address.is_local and not address.socket_path,
        )
        super().__init__(settings, address, application)

    def attach(self, vaults: VaultPool) -> None:
        """Shows what these vaults hold from now on."""
        self._page.vaults = vaults

    async def _show(self) -> Page:
        return Page(await self._page.write(), CONTENT_TYPE)
