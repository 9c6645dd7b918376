"""Servers that are restarted behind Envoy, under load: no call fails, and no change is missed."""

from pathlib import Path

import pytest

from tests.support.restart_trial import Trial, mesh

pytestmark = [pytest.mark.mesh, pytest.mark.timeout(900)]


@pytest.mark.parametrize("how", ["terminate", "kill"])
async def test_no_call_fails_and_no_change_is_missed_while_servers_restart(how: str, tmp_path: Path) -> None:
    async with mesh(tmp_path) as (front, servers):
        result = await Trial(front, servers, print).run(how, restarts=2)
    assert len(result.away_s) == 2
    assert result.calls > 1000
    assert result.deliveries >= result.changes * 5 > 0
