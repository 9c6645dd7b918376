"""A server that measures, and the samples of its page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.server import Connection, whole_server

Key = tuple[str, tuple[tuple[str, str], ...]]


class Measured:
    """A server that measures, and what its page shows."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.url = f"http://{connection.server.metrics_address}"

    async def page(self) -> dict[Key, float]:
        """The samples of the page."""
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self.url}/metrics")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
        families = text_string_to_metric_families(answer.text)
        return {(each.name, tuple(sorted(each.labels.items()))): each.value for f in families for each in f.samples}


def key(name: str, **labels: str) -> Key:
    """The key of a sample."""
    return f"mnemon_{name}", tuple(sorted(labels.items()))


@asynccontextmanager
async def measured(folder: Path, **settings: Any) -> AsyncIterator[Measured]:
    """A server that measures."""
    async with whole_server(folder, metrics_listen="127.0.0.1:0", **settings) as connection:
        yield Measured(connection)
