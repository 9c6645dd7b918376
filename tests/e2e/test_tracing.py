"""Traces of calls, as a collector gets them."""

from pathlib import Path

import pytest
from mnemon.v1 import memory_pb2 as pb

from tests.support.access import every_event_logged
from tests.support.server import whole_server
from tests.support.trace_collector import collecting

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CREATE = pb.CreateMemoryRequest(memory=pb.Memory(content="Ada likes tea"))


def traceparent(*, sampled: bool) -> tuple[tuple[str, str], ...]:
    """The header of a call that belongs to a trace."""
    return (("traceparent", f"00-{TRACE}-{PARENT}-0{int(sampled)}"),)


async def test_a_call_is_one_trace_from_its_caller_to_the_commit(tmp_path: Path) -> None:
    async with collecting() as collector:
        async with whole_server(tmp_path, trace_endpoint=collector.endpoint, trace_sample_ratio=0.0) as server:
            call = server.memories.CreateMemory(CREATE, metadata=traceparent(sampled=True))
            await call
            told = dict(await call.trailing_metadata())["traceparent"]
        spans = {span.name: span for span in collector.spans}
    assert spans.keys() == {"mnemon.v1.MemoryService/CreateMemory", "embed", "write"}
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    root = spans.pop("mnemon.v1.MemoryService/CreateMemory")
    assert root.parent_span_id.hex() == PARENT
    assert {span.parent_span_id for span in spans.values()} == {root.span_id}
    assert told == f"00-{TRACE}-{root.span_id.hex()}-01"
    attributes = {each.key: each.value.string_value for each in root.attributes}
    assert attributes["rpc.method"] == "CreateMemory" and attributes["rpc.grpc.status_code"] == "OK"
    for part in spans.values():
        assert root.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano
        assert part.end_time_unix_nano <= root.end_time_unix_nano


async def test_a_caller_decides_by_its_traceparent_and_others_by_the_ratio(tmp_path: Path) -> None:
    async with collecting() as collector:
        for ratio in (0.0, 1.0):
            async with whole_server(tmp_path, trace_endpoint=collector.endpoint, trace_sample_ratio=ratio) as server:
                await server.memories.CountMemories(pb.CountMemoriesRequest(), metadata=traceparent(sampled=False))
                await server.memories.CountMemories(pb.CountMemoriesRequest())
            calls = [span for span in collector.spans if span.name.endswith("CountMemories")]
            assert len(calls) == ratio
        assert calls[0].trace_id.hex() != TRACE


async def test_log_lines_and_errors_name_the_trace_even_if_nothing_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = traceparent(sampled=True)[0][1]
    with every_event_logged():
        async with whole_server(tmp_path) as server:
            call = server.memories.GetMemory(pb.GetMemoryRequest(memory_id="none"), metadata=traceparent(sampled=True))
            assert (await call.code()).name == "NOT_FOUND"
            assert dict(await call.trailing_metadata())["traceparent"] == header
            spoiled = server.memories.CountMemories(
                pb.CountMemoriesRequest(), metadata=(("traceparent", f"{header}\x7e"),)
            )
            await spoiled
            assert "traceparent" not in dict(await spoiled.trailing_metadata())
    [line] = [line for line in capsys.readouterr().err.splitlines() if "GetMemory" in line]
    assert header in line
