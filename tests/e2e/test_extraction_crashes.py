"""The server is killed while extractors answer: every message is extracted, and its statement is saved once."""

import asyncio
import itertools
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon.v1 import extractor_pb2 as pb

from tests.support.extractors import extractor_service, model, said_in, statement
from tests.support.killable import KillableServer
from tests.support.server import WAIT_S, eventually, until
from tests.support.tool_endpoints import tool_server

ROUNDS = int(os.environ.get("MNEMON_CRASH_ROUNDS", "5"))
CONVERSATIONS, MESSAGES = 3, 4
UNRELATED = {
    "detection": {"signals": ["semantic"], "required_signals": ["semantic"], "semantic_threshold": 1.0},
}
"""A rule by which no statement takes the place of another one."""


class Extractors:
    """Answers with one statement for each message; each answer has its own number, so that a repetition shows."""

    def __init__(self) -> None:
        self.calls = itertools.count(1)
        self.answered = 0

    def of_model(self, asked: Mapping[str, Any]) -> Any:
        number = self._next()
        found = [statement(f"{text}, answer {number}", [place]) for place, text in enumerate(said_in(asked), 1)]
        return {"statements": found, "summary": f"Summary {number}."}

    async def of_service(self, request: pb.ExtractStatementsRequest, context: Any) -> pb.ExtractStatementsResponse:
        number = self._next()
        found = [
            {"content": f"{each.content}, answer {number}", "message_ids": [each.message_id]}
            for each in request.messages
        ]
        return pb.ExtractStatementsResponse(statements=found, summary=f"Summary {number}.")

    async def answer(self, count: int) -> None:
        """Returns when this many answers were made."""
        await until(lambda: self.answered >= count)

    def _next(self) -> int:
        self.answered += 1
        return next(self.calls)


@asynccontextmanager
async def serving(mode: str, extractors: Extractors) -> AsyncIterator[list[str]]:
    """Serves an extractor; yields the server's flags for it."""
    common = ["--extract-quiet-s", "0", "--extract-retry-s", "0.01", "--extract-messages-max", "2"]
    if mode == "model":
        with tool_server(model(extractors.of_model)) as served:
            yield [*common, "--extract-endpoint", f"http://127.0.0.1:{served.port}/v1", "--extract-model", "scripted"]
    else:
        async with extractor_service(extractors.of_service) as service:
            yield [*common, "--extract-service", service.address]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["model", "service"])
async def test_kill_9_loses_no_message_and_doubles_no_statement(tmp_path: Path, mode: str) -> None:
    rng, extractors, said = random.Random(7), Extractors(), set[str]()
    async with serving(mode, extractors) as flags:
        server = KillableServer(tmp_path, "--semantic-write-latency-target-ms", "60000", *flags)
        try:
            for number in range(ROUNDS + 1):
                await asyncio.to_thread(server.start)
                async with mnemon.AsyncClient(server.address) as client:
                    if not number:
                        await client.rules.update("default", UNRELATED)
                        await client.bridge.update_policy(extract=mode)
                    before = extractors.answered
                    for place, turn in itertools.product(range(CONVERSATIONS), range(MESSAGES)):
                        text = f"message {number} {turn} of {place}"
                        said.add(text)
                        turns = [{"role": "user", "content": text, "message_id": text}]
                        await client.conversations.append(f"c{place}", turns, user=f"u{place}")
                    if number < ROUNDS:
                        # At a call of the extractor, or soon after one: before, while or after its answer is saved.
                        await extractors.answer(before + rng.randint(1, 4))
                        await asyncio.sleep(rng.choice([0.0, 0.005, 0.02, 0.05]))
                        await asyncio.to_thread(server.kill)
                    else:
                        await _check(client, said)
        finally:
            server.kill()


async def _check(client: mnemon.AsyncClient, said: set[str]) -> None:
    async def is_done() -> bool:
        found = (await client.bridge.status()).extraction
        return found is not None and found.waiting_count == 0 and found.extracted_count == len(said)

    await eventually(is_done, 2 * WAIT_S)
    statements = [each async for each in client.semantic.list(show_superseded=True)]
    assert Counter(each.content.partition(",")[0] for each in statements) == Counter(said)
    found = (await client.bridge.status()).extraction
    assert found is not None
    assert (found.statement_count, found.refused_counts) == (len(said), {})
    links = Counter(link for each in statements for link in each.metadata["episodic_event_ids"])
    assert len(links) == len(said) and set(links.values()) == {1}
    summaries = [each async for each in client.timeline.list(event_types=["summary"])]
    # One for each batch, none twice.
    assert len({each.event_id for each in summaries}) == len(summaries) <= found.call_count
