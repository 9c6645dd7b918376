"""An extractor that speaks gRPC: a client of an operator's ExtractorService."""

import asyncio
from pathlib import Path

import grpc
from grpc import aio
from mnemon.v1 import extractor_pb2 as pb
from mnemon.v1 import extractor_pb2_grpc

from mnemon_server.config.address import Address
from mnemon_server.domain.bridge.extraction import (
    STATEMENTS_MAX,
    SUMMARY_CHARACTERS_MAX,
    Extracted,
    Extraction,
    ExtractionRequest,
    Refusal,
    Turn,
)
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.endpoints.key_file import read_key
from mnemon_server.services.extraction.extractor import ExtractorAwayError, RefusedError
from mnemon_server.transport.channels import operator_channel
from mnemon_server.wire.values import fill_scope, fill_time, time_from_pb

NAME = "the extractor's service"
ANSWER_BYTES_MAX = 1 << 20
_BYTES_PER_TOKEN = 4
_REJECTING = frozenset(
    {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.FAILED_PRECONDITION}
)
"""Statuses that are about the messages. All others are about the service."""


class GrpcExtractor:
    """An `Extractor` that calls ExtractorService at one address, on one connection.

    Raises:
        ConfigurationError: the address or the key file is invalid, or the key would be sent to another machine in plain
            text.
    """

    def __init__(self, address: str, *, tls: bool, key_file: Path | None, timeout_s: float) -> None:
        """Connects on the first call."""
        place = Address.parse(address)
        if place.socket_path:
            raise ConfigurationError(f"extract_service must be HOST:PORT, not {address!r}")
        if key_file is not None:
            if not tls and not place.is_local:
                raise ConfigurationError(
                    "extract_service_key_file needs extract_service_tls: others could read the key"
                )
            read_key(key_file)
        self._key_file = key_file
        self._timeout_s = timeout_s
        self._channel = operator_channel(address, tls=tls, answer_bytes_max=ANSWER_BYTES_MAX)
        self._stub = extractor_pb2_grpc.ExtractorServiceStub(self._channel)

    async def extract(self, request: ExtractionRequest) -> Extraction:
        """See `Extractor.extract`."""
        message = request_to_pb(request)
        try:
            metadata = await asyncio.to_thread(self._metadata)
            answer = await self._stub.ExtractStatements(message, timeout=self._timeout_s, metadata=metadata)
        except ConfigurationError as error:
            raise ExtractorAwayError(str(error)) from error
        except aio.AioRpcError as error:
            raise self._failure(error.code()) from error
        tokens = answer.token_count if answer.token_count > 0 else message.ByteSize() // _BYTES_PER_TOKEN
        return _read(answer, tokens)

    async def aclose(self) -> None:
        """See `Extractor.aclose`."""
        await self._channel.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        """The key is read for each call, so that it can be replaced."""
        return (("authorization", f"Bearer {read_key(self._key_file)}"),) if self._key_file else ()

    def _failure(self, code: grpc.StatusCode) -> Exception:
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return ExtractorAwayError(f"{NAME} did not answer within {self._timeout_s:g} s")
        if code is grpc.StatusCode.UNAVAILABLE:
            return ExtractorAwayError(f"{NAME} cannot be reached, or closed the connection")
        message = f"{NAME} answered with status {code.name}"
        if code in _REJECTING:
            return RefusedError(Refusal.REJECTED, message)
        return ExtractorAwayError(message)


def request_to_pb(request: ExtractionRequest) -> pb.ExtractStatementsRequest:
    """The request as a message."""
    message = pb.ExtractStatementsRequest(
        conversation_id=request.conversation,
        summary=request.summary,
        statements_max=STATEMENTS_MAX,
        content_max=request.content_max,
        summary_max=SUMMARY_CHARACTERS_MAX,
        refusal_message=request.refusal,
    )
    fill_scope(message, request.scope)
    fill_time(message.request_time, request.now)
    for turn in request.messages:
        _fill_turn(message.messages.add(), turn)
    for turn in request.earlier:
        _fill_turn(message.earlier_messages.add(), turn)
    for each in request.known:
        known = message.known_statements.add(memory_id=each.memory_id, content=each.content)
        fill_time(known.create_time, each.time)
        if each.importance is not None:
            known.importance = each.importance
    return message


def _fill_turn(target: pb.ExtractionMessage, turn: Turn) -> None:
    target.message_id, target.role, target.name, target.content = turn.message_id, turn.role, turn.name, turn.content
    fill_time(target.message_time, turn.time)


def _read(answer: pb.ExtractStatementsResponse, tokens: int) -> Extraction:
    statements = tuple(
        Extracted(
            content=each.content,
            message_ids=tuple(each.message_ids),
            importance=each.importance if each.HasField("importance") else None,
            valid_time=time_from_pb(each.valid_time) if each.HasField("valid_time") else None,
            updates=each.updates,
        )
        for each in answer.statements
    )
    return Extraction(statements=statements, summary=answer.summary, tokens=tokens, extractor=NAME)
