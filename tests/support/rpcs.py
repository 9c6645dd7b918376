"""Every RPC in the descriptors. A test that iterates over them covers RPCs that are added later."""

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mnemon.v1
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

TIMEOUT_S = 60.0
SERVED_BY_OTHERS = {"ExtractorService", "ToolProviderService"}


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC."""

    method: MethodDescriptor

    @property
    def name(self) -> str:
        """For example "MemoryService/GetMemory"."""
        return f"{self.method.containing_service.name}/{self.method.name}"

    def request(self, **fields: Any) -> Any:
        """A request of its type."""
        return message_factory.GetMessageClass(self.method.input_type)(**fields)

    async def call(self, channel: aio.Channel, *requests: Any, timeout_s: float = TIMEOUT_S) -> list[Any]:
        """Its answer, or all answers of a stream. A stream of requests takes several requests."""
        kind = "_".join("stream" if streams else "unary" for streams in (self._sends, self.method.server_streaming))
        stub = getattr(channel, kind)(
            f"/{self.method.containing_service.full_name}/{self.method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(self.method.output_type).FromString,
        )
        call = stub(iter(requests) if self._sends else requests[0], timeout=timeout_s)
        return [each async for each in call] if self.method.server_streaming else [await call]

    @property
    def _sends(self) -> bool:
        return bool(self.method.client_streaming)


def modules() -> Iterable[Any]:
    """The modules with the messages."""
    for found in pkgutil.iter_modules(mnemon.v1.__path__):
        if found.name.endswith("_pb2"):
            yield importlib.import_module(f"mnemon.v1.{found.name}")


def rpcs() -> list[Rpc]:
    """All RPCs of the server, in a stable order."""
    services = [service for module in modules() for service in module.DESCRIPTOR.services_by_name.values()]
    return [Rpc(method) for service in services if service.name not in SERVED_BY_OTHERS for method in service.methods]
