"""The extractor of server/EXTRACTION.md, as printed, beside a server with the settings of that page."""

import re
import tomllib
from pathlib import Path
from typing import Any

import mnemon
from mnemon_server.config.settings import SETTINGS
from mnemon_server.services.extraction.chat_extractor import PROMPT_FILE

from tests.support.repository import ROOT
from tests.support.server import eventually, whole_server

PAGE = (ROOT / "server/EXTRACTION.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_extractor_of_the_page_makes_statements(tmp_path: Path) -> None:
    [program] = blocks("python")
    names: dict[str, Any] = {"__name__": "extractor"}
    exec(compile(program, "extractor.py", "exec"), names)  # noqa: S102
    service, port = await names["serve"]("127.0.0.1:0")
    try:
        settings = {"extract_service": f"127.0.0.1:{port}", "extract_quiet_s": 0.0}
        async with (
            whole_server(tmp_path, **settings) as server,
            mnemon.AsyncClient(str(server.server.address)) as client,
        ):
            await client.bridge.update_policy(extract="service")
            turns = [{"role": "user", "content": "I like boats."}, {"role": "assistant", "content": "I like tea."}]
            await client.conversations.append("c1", turns, user="Ada")

            async def is_known() -> bool:
                return [each.content async for each in client.semantic.list(user="Ada")] == ["Ada likes boats."]

            await eventually(is_known)
    finally:
        await service.stop(None)


def test_the_page_names_settings_and_files_that_exist() -> None:
    for block in blocks("toml"):
        assert {*tomllib.loads(re.sub(r"^# (?=extract)", "", block, flags=re.MULTILINE))} <= {*SETTINGS}
    assert set(re.findall(r"`(extract_\w+)`", PAGE)) <= {*SETTINGS}
    assert str(PROMPT_FILE).endswith("mnemon_server/services/extraction/prompt.md") and PROMPT_FILE.exists()
