"""The gRPC server: what it serves, how it starts, and how it shuts down without dropping a call."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import grpc
import structlog
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.internal import api_implementation
from grpc import aio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings
from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.vault_folders import vaults_folder
from mnemon_server.services.access.audit import AuditLog
from mnemon_server.services.access.identities import Identities
from mnemon_server.services.limits.accounts import Accounts
from mnemon_server.services.limits.outbox import Outbox
from mnemon_server.services.reading.answers import AnswerMemory
from mnemon_server.transport.conversions import Conversions
from mnemon_server.transport.generic_services import GenericServices
from mnemon_server.transport.health import HEALTH_SERVICE, HealthServicer, Readiness, keep_readiness
from mnemon_server.transport.http.assembly import http_server
from mnemon_server.transport.http.server import HttpServer
from mnemon_server.transport.interceptors.access import Access
from mnemon_server.transport.interceptors.audit import Audit
from mnemon_server.transport.interceptors.codec import Codec, Receiver
from mnemon_server.transport.interceptors.grpc_calls import GrpcCalls
from mnemon_server.transport.interceptors.limiter import Limiter
from mnemon_server.transport.interceptors.pipeline import Pipeline, Steps
from mnemon_server.transport.interceptors.stream_writer import StreamWriter
from mnemon_server.transport.interceptors.time_limit import DefaultDeadline
from mnemon_server.transport.listening import require_private_folder
from mnemon_server.transport.metrics.call_figures import CallFigures
from mnemon_server.transport.roles import permissions
from mnemon_server.transport.server_group import ServerGroup
from mnemon_server.transport.servicers.access import AccessServicer
from mnemon_server.transport.servicers.archive import ArchiveServicer
from mnemon_server.transport.servicers.backup import BackupServicer
from mnemon_server.transport.servicers.bridge import BridgeServicer
from mnemon_server.transport.servicers.change import ChangeServicer
from mnemon_server.transport.servicers.conflict import ConflictServicer
from mnemon_server.transport.servicers.conversations import ConversationServicer
from mnemon_server.transport.servicers.erase import EraseServicer
from mnemon_server.transport.servicers.events import EventServicer
from mnemon_server.transport.servicers.facts import FactServicer
from mnemon_server.transport.servicers.knowledge_store import KnowledgeStoreServicer
from mnemon_server.transport.servicers.memory import MemoryServicer
from mnemon_server.transport.servicers.quarantine import QuarantineServicer
from mnemon_server.transport.servicers.recall import RecallServicer
from mnemon_server.transport.servicers.rules import RulesServicer
from mnemon_server.transport.servicers.semantic import SemanticServicer
from mnemon_server.transport.servicers.server import ServerServicer
from mnemon_server.transport.servicers.tenants import TenantRegistryServicer
from mnemon_server.transport.servicers.tools import ToolServicer
from mnemon_server.transport.tenancy import TenantServicer
from mnemon_server.transport.tls import server_credentials
from mnemon_server.transport.unknown_methods import UnknownMethods

if TYPE_CHECKING:
    from mnemon_server.services.vaults import VaultPool
    from mnemon_server.transport.interceptors.tracing import Tracing
    from mnemon_server.transport.metrics.server import MetricsServer


# Reflection: clients such as grpcurl and buf learn from the server which services and messages there are.


V1, V1ALPHA = "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"


def add_reflection(server: aio.Server, services: Sequence[str]) -> None:
    """Serves reflection under both of its names: the package knows the older only, the messages are the same."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer(service_names=[*services, V1, V1ALPHA])
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}) for name in (V1, V1ALPHA))
    )


def _describe_v1() -> None:
    """Makes the newer name known to the pool: clients that list all services ask for the description of each."""
    pool = descriptor_pool.Default()
    older = reflection_pb2.DESCRIPTOR
    name = older.name.replace("v1alpha", "v1")
    try:
        pool.FindFileByName(name)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        older.CopyToProto(file)
        text = text_format.MessageToString(file).replace("v1alpha", "v1")
        pool.Add(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()))


SERVICERS: tuple[type[TenantServicer], ...] = (
    AccessServicer,
    TenantRegistryServicer,
    KnowledgeStoreServicer,
    MemoryServicer,
    SemanticServicer,
    ConflictServicer,
    RulesServicer,
    EventServicer,
    BridgeServicer,
    FactServicer,
    ToolServicer,
    ArchiveServicer,
    BackupServicer,
    EraseServicer,
    QuarantineServicer,
    RecallServicer,
    ConversationServicer,
    ChangeServicer,
    ServerServicer,
)
DESCRIPTORS = tuple(servicer.descriptor() for servicer in SERVICERS)
SERVICES = tuple(service.full_name for service in DESCRIPTORS)
_PATHS = frozenset(f"/{service.full_name}/{method.name}" for service in DESCRIPTORS for method in service.methods)
INDEXED_SERVICES = tuple(
    servicer.descriptor().full_name
    for servicer in (SemanticServicer, EventServicer, RecallServicer, ConversationServicer)
)
"""The services that serve once the indexes are warm."""
DRAIN_S = 3.0
LAST_MESSAGE_S = 1.0
_POLL_S = 0.02

_log = structlog.get_logger()


class GrpcServer:
    """Serves health from the start, and vaults once they are attached. An async context manager."""

    def __init__(
        self,
        settings: Settings,
        *,
        identities: Identities | None = None,
        accounts: Accounts | None = None,
        audit: AuditLog | None = None,
        tracing: "Tracing | None" = None,
        extra_handlers: Sequence[grpc.GenericRpcHandler] = (),
    ) -> None:
        """Binds nothing yet.

        Args:
            settings: what to serve, and where.
            identities: who may call; None: everybody.
            accounts: what callers use, and may use; None: as much as the server can do.
            audit: gets the calls that the settings name; None: no call.
            tracing: traces calls; None: no call.
            extra_handlers: further services.
        """
        self._settings = settings
        self._tracing = tracing
        reads = settings.audit_log == "all"
        self._audit = Audit(audit, permissions(DESCRIPTORS), reads=reads) if audit else None
        self._access = Access(identities, permissions(DESCRIPTORS))
        self._extra_handlers = tuple(extra_handlers)
        self._address = Address.parse(settings.listen)
        self._health = HealthServicer(SERVICES, indexed=INDEXED_SERVICES)
        self._answers = AnswerMemory(settings.answer_memory_mib << 20)
        self.accounts = accounts or Accounts()
        """The use and the quotas of tenants and callers."""
        outbox = Outbox(wait_s=settings.stream_write_timeout_s)
        self._limiter = Limiter(
            unary_calls_max=settings.unary_calls_max,
            streams_max=settings.streams_max,
            accounts=self.accounts,
            outbox=outbox,
        )
        tenants = identities.tenants if identities else None
        arguments: Mapping[type[TenantServicer], tuple[Any, ...]] = {
            AccessServicer: (identities.keys if identities else None,),
            TenantRegistryServicer: (tenants, self.accounts, vaults_folder(settings.data_dir)),
            ToolServicer: (settings.max_message_mib << 20,),
            ServerServicer: (settings,),
        }
        self._servicers = [servicer(*arguments.get(servicer, ())) for servicer in SERVICERS]
        self._streams = StreamWriter(
            write_timeout_s=settings.stream_write_timeout_s, outbox=outbox, large=self._limiter.large
        )
        self._readiness: asyncio.Task[None] | None = None
        self._server: ServerGroup | None = None
        self._http: HttpServer | None = None
        self._metrics: MetricsServer | None = None
        self._figures = CallFigures(_PATHS) if settings.metrics_listen else None

    @property
    def metrics_address(self) -> Address | None:
        """Where it shows metrics; None if it does not."""
        return self._metrics.address if self._metrics else None

    @property
    def http_address(self) -> Address | None:
        """Where it serves HTTP; None if it does not."""
        return self._http.address if self._http else None

    @property
    def address(self) -> Address:
        """Where it listens; port 0 has become the port that was free."""
        return self._address

    @property
    def http_connections(self) -> int:
        """Open connections of HTTP."""
        return self._http.connections if self._http else 0

    @property
    def health(self) -> HealthServicer:
        """The answers to health checks."""
        return self._health

    @property
    def open_streams(self) -> int:
        """Open streams, except for those of the health service."""
        return self._streams.open_count

    @property
    def is_shutting_down(self) -> bool:
        """Whether open streams have been ended, and new ones are refused."""
        return self._streams.is_ending()

    async def __aenter__(self) -> Self:
        """Binds the address and answers health checks; everything else is UNAVAILABLE until `serve`.

        Raises:
            ConfigurationError: the address is taken, a TLS file cannot be read, or protobuf runs in pure Python.
        """
        _require_fast_protobuf()
        self._server = self._build()
        self._address = self._bind(self._server)
        await self._server.start()
        try:
            for server in self._http_servers:
                await server.start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends at once what `shut_down` has not ended."""
        self._stop_readiness()
        for server in self._http_servers:
            await server.stop(0.0)
        if self._server is not None:
            await self._server.stop(None)

    async def serve(self, vaults: "VaultPool") -> None:
        """Serves the vaults, and answers health checks with SERVING for as long as they take writes."""
        for servicer in self._servicers:
            servicer.attach(vaults, self._answers)
        if self._metrics is not None:
            self._metrics.attach(vaults)

        async def check() -> Readiness:
            return Readiness(await vaults.is_ready(), vaults.is_warm(DEFAULT_TENANT))

        now = await check()
        self._health.set_ready(ready=now.ready, warm=now.warm)
        watching = keep_readiness(self._health, check, interval_s=self._settings.health_check_interval_s)
        self._readiness = asyncio.create_task(watching)

    async def shut_down(self) -> None:
        """Shuts down gracefully: NOT_SERVING, time for clients to leave, streams ended, calls in progress finished."""
        _log.info("shutting down", open_streams=self._streams.open_count)
        self._stop_readiness()
        self._health.shut_down()
        await asyncio.sleep(self._drain_s())
        self._streams.end_all()
        stopping = [self._stop(self._server)] if self._server is not None else []
        stopping += [server.stop(self._settings.shutdown_grace_s) for server in self._http_servers]
        await asyncio.gather(*stopping)

    async def _stop(self, server: ServerGroup) -> None:
        """Stops within the grace period; sooner if all that is left are clients that do not read their last message."""
        stopping = asyncio.create_task(server.stop(self._settings.shutdown_grace_s))
        clock = asyncio.get_running_loop().time
        busy_at = clock()
        # A call that the runtime accepted before may reach its handler only now, and is answered as well.
        while not stopping.done() and clock() - busy_at < LAST_MESSAGE_S:
            if self._limiter.calls_in_work or self._streams.open_count:
                busy_at = clock()
            await asyncio.wait([stopping], timeout=_POLL_S)
        await server.stop(None)
        await stopping

    def _stop_readiness(self) -> None:
        if self._readiness is not None:
            self._readiness.cancel()

    def _drain_s(self) -> float:
        if self._settings.shutdown_drain_s is not None:
            return self._settings.shutdown_drain_s
        return 0.0 if self._address.is_local and (self._http is None or self._http.address.is_local) else DRAIN_S

    def _build(self) -> ServerGroup:
        settings, pipeline = self._settings, self._pipeline()
        generic = GenericServices()
        services = cast("aio.Server", generic)
        for servicer in self._servicers:
            servicer.add_to(services)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, services)
        if self._has_reflection():
            add_reflection(services, [*SERVICES, HEALTH_SERVICE])
        generic.add_generic_rpc_handlers((*self._extra_handlers, UnknownMethods(_PATHS)))
        self._http = http_server(settings, pipeline, generic.find, self._health)
        self._metrics = self._metrics_server()
        return ServerGroup(settings, self._address, GrpcCalls(pipeline, generic.find))

    def _metrics_server(self) -> "MetricsServer | None":
        if self._figures is None:
            return None
        # Imported here, because its library takes as long to load as the rest of the transport.
        from mnemon_server.transport.metrics.server import MetricsServer

        return MetricsServer(
            self._settings,
            health=self._health,
            accounts=self.accounts,
            figures=self._figures,
            limiter=self._limiter,
            streams=self._streams,
        )

    @property
    def _http_servers(self) -> list[HttpServer]:
        return [server for server in (self._http, self._metrics) if server is not None]

    def _pipeline(self) -> Pipeline:
        settings = self._settings
        steps = Steps(
            access=self._access,
            receiver=Receiver(seconds=settings.request_timeout_s),
            limiter=self._limiter,
            streams=self._streams,
            deadline=DefaultDeadline(seconds=settings.default_deadline_s),
            codec=Codec(
                message_bytes_max=settings.max_message_mib << 20,
                conversions=Conversions(),
                figures=self._figures,
            ),
            audit=self._audit,
            figures=self._figures,
            tracing=self._tracing,
        )
        return Pipeline(steps)

    def _has_reflection(self) -> bool:
        return self._address.is_local if self._settings.reflection is None else self._settings.reflection

    def _bind(self, server: ServerGroup) -> Address:
        if "unix" in self._settings.authentication:
            for address in filter(None, (self._address, self.http_address)):
                require_private_folder(Path(address.socket_path).parent)
        return server.listen(self._address, server_credentials(self._settings))


def _require_fast_protobuf() -> None:
    # In pure Python it is some fifty times slower, and deeply nested messages can bring it down (CVE-2025-4565).
    if (kind := api_implementation.Type()) != "upb":
        raise ConfigurationError(
            f"protobuf runs as {kind!r}, not as 'upb': install its wheel, "
            "and unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
        )
