"""Asks a server's health service one question."""

from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mnemon_server.transport.channels import channel_to


def ask_health(
    target: str, service: str, *, timeout_s: float, ca: Path | None = None, server_name: str | None = None
) -> str:
    """SERVING, NOT_SERVING, or why there is no answer."""
    with channel_to(target, ca=ca, server_name=server_name) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_s)
        except grpc.RpcError as error:
            return f"no answer from {target}: {error.code().name} {error.details()}"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
