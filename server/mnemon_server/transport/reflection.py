"""Reflection: clients such as grpcurl and buf learn from the server which services and messages there are."""

from collections.abc import Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc import aio
from grpc_reflection.v1alpha import reflection, reflection_pb2

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
