"""No request with any values causes a fault of the server."""

from pathlib import Path

import pytest

from tests.support.rpc_fuzzing import faults
from tests.support.server import whole_server


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_request_is_answered_with_an_internal_error(tmp_path: Path, seed: int) -> None:
    async with whole_server(tmp_path) as server:
        assert await faults(server, seed=seed, rounds=4) == []
