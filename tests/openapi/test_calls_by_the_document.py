"""Every method is called by the OpenAPI document: with what it allows, with what it forbids, and at its limits."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.support.access import guarded_server, make_key
from tests.support.http_calls import http_client
from tests.support.repository import ROOT

pytestmark = pytest.mark.openapi

HOOKS = Path(__file__).parent / "hooks.py"
SEED = os.environ.get("MNEMON_OPENAPI_SEED", "0")
DEADLINE_S = 900.0
CASES_MIN = 1_000


@pytest.mark.timeout(DEADLINE_S + 60)
async def test_the_server_takes_what_the_document_allows_and_refuses_what_it_forbids(tmp_path: Path) -> None:
    keys = {f"MNEMON_{role.upper()}_KEY": make_key(tmp_path, role) for role in ("admin", "operator")}
    async with guarded_server(tmp_path, http_listen="127.0.0.1:0") as server, http_client(server) as client:
        process = await asyncio.create_subprocess_exec(
            *(ROOT / ".venv/openapi/bin/schemathesis", "run", f"{client.base_url}/openapi.json"),
            # A GET has the same request; `e2e/test_openapi.py` makes one.
            *(
                "--include-method",
                "POST",
                "--phases",
                "coverage",
                "--checks",
                "all",
                "--exclude-checks",
                "ignored_auth",
            ),
            *("--seed", SEED, "--continue-on-failure", "--no-shrink", "--no-color", "--generation-allow-x00", "false"),
            *("--generation-database", "none", "--request-timeout", "60", "--suppress-health-check", "all"),
            cwd=tmp_path,
            env={**os.environ, **keys, "SCHEMATHESIS_HOOKS": str(HOOKS), "MNEMON_OPENAPI_SEED": SEED},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    said = output.decode()
    assert process.returncode == 0, f"seed {SEED}:\n{said}"
    assert _generated(said) > CASES_MIN, said


def _generated(said: str) -> int:
    found = re.search(r"([0-9,]+) generated", said)
    return int(found[1].replace(",", "")) if found else 0
