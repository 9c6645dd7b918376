"""Serves the page of metrics on an address of its own: it names tenants, and so is not for everybody who may call."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings
from mnemon_server.domain.observation.figures import (
    BATCH_SECONDS,
    BATCH_TEXTS,
    COMMIT_SECONDS,
    COMMIT_WRITES,
    WATCH_LAG_SECONDS,
    Tally,
)
from mnemon_server.services.background.gauges import VaultGauges
from mnemon_server.services.limits.accounts import Accounts, Usage
from mnemon_server.services.vaults import VaultPool
from mnemon_server.transport.health import HealthServicer
from mnemon_server.transport.http.application import Application, Page
from mnemon_server.transport.http.assembly import probes
from mnemon_server.transport.http.cross_origin import CrossOrigin
from mnemon_server.transport.http.server import HttpServer
from mnemon_server.transport.interceptors.limiter import Limiter
from mnemon_server.transport.interceptors.stream_writer import StreamWriter
from mnemon_server.transport.metrics.call_figures import CallFigures

# The page that Prometheus reads: figures of this process, and gauges of what is open, in its text format.


CONTENT_TYPE = CONTENT_TYPE_LATEST
TENANTS_SHOWN = 50
"""Tenants with figures of their own: the first that called since the start. The others share the label \"\"."""

_HISTOGRAMS = (
    ("mnemon_commit_writes", "Writes that shared a transaction of a vault.", COMMIT_WRITES),
    ("mnemon_commit_seconds", "How long a transaction of a vault took, with its sync.", COMMIT_SECONDS),
    ("mnemon_embedding_batch_texts", "Texts in a run of the embedding model.", BATCH_TEXTS),
    ("mnemon_embedding_batch_seconds", "How long a run of the embedding model took.", BATCH_SECONDS),
    (
        "mnemon_watch_lag_seconds",
        "Age of the newest change when a watcher that lags behind nothing gets it.",
        WATCH_LAG_SECONDS,
    ),
)


class MetricsPage:
    """Writes the page. Belongs to the event loop."""

    def __init__(
        self, figures: CallFigures, accounts: Accounts, *, calls: Callable[[], int], streams: Callable[[], int]
    ) -> None:
        """Reads from these when it is asked; `calls` counts single calls in progress, and `streams` open ones."""
        self._figures, self._accounts = figures, accounts
        self._calls, self._streams = calls, streams
        self._process = CollectorRegistry()
        PlatformCollector(self._process)
        ProcessCollector(registry=self._process)
        self.vaults: VaultPool | None = None
        """The vaults, once they are served."""

    async def write(self) -> bytes:
        """The current page."""
        gauges = await self.vaults.gauges() if self.vaults else []
        families = [
            *self._process.collect(),
            *_calls(self._figures),
            *(_histogram(name, text, [((), tally)]) for name, text, tally in _HISTOGRAMS),
            *self._now(gauges),
            *_indexes(gauges),
            *_tenants(self._accounts.usages()),
        ]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(families))
        return generate_latest(registry)

    def _now(self, gauges: Sequence[VaultGauges]) -> Iterator[Metric]:
        open_vaults = len(self.vaults.open_tenants) if self.vaults else 0
        writes, changes = sum(each.waiting_writes for each in gauges), sum(each.bridge_waiting for each in gauges)
        # All vaults share one model.
        texts = max((each.waiting_texts for each in gauges), default=0)
        for name, text, value in (
            ("calls_in_progress", "Single calls that are not answered yet.", self._calls()),
            ("streams_open", "Open streams.", self._streams()),
            ("vaults_open", "Open vaults.", open_vaults),
            ("embedding_waiting_texts", "Texts that have no vector yet.", texts),
            ("writes_waiting", "Writes that wait for a transaction.", writes),
            ("bridge_waiting_events", "Events that bridges have not handled yet.", changes),
        ):
            yield GaugeMetricFamily(f"mnemon_{name}", text, value)


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _calls(figures: CallFigures) -> Iterator[Metric]:
    labels = ("service", "method")
    yield _histogram(
        "mnemon_rpc_seconds",
        "How long calls took, by their status. For streams: how long they were open.",
        [((each.service, each.method, code), tally) for each in figures for code, tally in each.seconds.items()],
        labels=(*labels, "code"),
    )
    messages = CounterMetricFamily("mnemon_stream_messages", "Messages in streams.", labels=(*labels, "direction"))
    size = CounterMetricFamily("mnemon_stream_bytes", "Bytes of messages in streams.", labels=(*labels, "direction"))
    for each in figures:
        for direction, traffic in (("received", each.received), ("sent", each.sent)):
            if traffic.messages:
                messages.add_metric((each.service, each.method, direction), traffic.messages)
                size.add_metric((each.service, each.method, direction), traffic.bytes)
    yield from (messages, size)


def _histogram(
    name: str, text: str, tallies: Iterable[tuple[tuple[str, ...], Tally]], *, labels: tuple[str, ...] = ()
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, tally in tallies:
        counts, total = tally.read()
        bounds = [*map(str, tally.bounds), "+Inf"]
        family.add_metric(values, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family


def _indexes(gauges: Iterable[VaultGauges]) -> Iterator[Metric]:
    counts: Counter[tuple[str, str]] = Counter()
    size: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    for each in gauges:
        for collection, usage in each.vectors.items():
            counts[collection, "live"] += usage.flat_count + usage.graph_count - usage.dead_count
            counts[collection, "dead"] += usage.dead_count
            counts[collection, "building"] += usage.building_count
            size[collection] += usage.bytes
        pending.update(each.pending_changes)
    vectors = GaugeMetricFamily(
        "mnemon_index_vectors", "Vectors of open vaults in memory.", labels=("collection", "state")
    )
    for (collection, state), count in counts.items():
        vectors.add_metric((collection, state), count)
    yield vectors
    for name, text, figures in (
        ("mnemon_index_bytes", "Memory for the vectors of open vaults.", size),
        ("mnemon_index_pending_changes", "Changes that an external index has not seen yet.", pending),
    ):
        family = GaugeMetricFamily(name, text, labels=("collection",))
        for collection, count in figures.items():
            family.add_metric((collection,), count)
        yield family


def _tenants(usages: dict[str, Usage]) -> Iterator[Metric]:
    shown = dict(islice(usages.items(), TENANTS_SHOWN))
    others = [usage for tenant, usage in usages.items() if tenant not in shown]
    for name, text, read in _USAGE:
        kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
        family = kind(f"mnemon_tenant_{name}", text, labels=("tenant",))
        for tenant, usage in shown.items():
            if (value := read(usage)) is not None:
                family.add_metric((tenant,), value)
        if others:
            family.add_metric(("",), sum(read(usage) or 0 for usage in others))
        yield family


_USAGE: tuple[tuple[str, str, Callable[[Usage], float | None]], ...] = (
    ("calls", "Calls that began.", lambda usage: usage.calls),
    ("refused_calls", "Calls that a quota refused.", lambda usage: usage.refused_calls),
    ("embedding_seconds", "For how long the embedding model ran.", lambda usage: usage.embedding_seconds),
    ("concurrent_calls", "Single calls that are not answered yet.", lambda usage: usage.concurrent_calls),
    ("open_streams", "Open streams.", lambda usage: usage.open_streams),
    ("bytes_in_flight", "Memory for requests and answers in progress.", lambda usage: usage.bytes_in_flight),
    ("records", "Stored records, as last counted; only with a quota.", lambda usage: usage.records),
    ("disk_bytes", "Size of the files, as last measured; only with a quota.", lambda usage: usage.disk_bytes),
)
_COUNTERS = ("calls", "refused_calls", "embedding_seconds")


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
