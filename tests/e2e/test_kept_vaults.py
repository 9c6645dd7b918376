"""Earlier versions: their archives are imported, and their data folders are refused with advice."""

from collections import Counter
from pathlib import Path

import pytest
from mnemon import AsyncClient

from tests.support.kept_vault import archive, unpack
from tests.support.server import run_command, whole_server


async def test_the_first_archive_is_imported(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as server, AsyncClient(str(server.server.address)) as client:
        results = [result async for result in client.archive.import_(archive(1))]
        assert [result.error for result in results if result.error] == []

        assert (await client.documents.get("note")).content == "Ada prefers aisle seats by now."
        memories = [memory.content async for memory in client.memories.list(show_deleted=True)]
        assert {"Ada likes green tea a lot.", "Ada lives in Paris."} <= set(memories)
        home = await client.facts.get(("user", "ada"), "home", versions=True)
        assert len(home.versions) == 2
        assert len([event async for event in client.timeline.list()]) == 31
        known = Counter([each.content async for each in client.semantic.list()])
        assert known["Ada must renew her passport."] == 1
        assert "Ada lives in Berlin." not in known
        assert (await client.rules.get("zoe")).rule["extends"] == "base"


@pytest.mark.parametrize("words", [("serve", "--listen", "127.0.0.1:0"), ("reembed",), ("backup", "copy")])
def test_the_first_data_folder_is_refused_and_left_as_it_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = unpack(1, tmp_path)
    file = folder / "tenants/default/records.db"
    before = file.read_bytes()
    done = run_command(*words, "--data-dir", str(folder))
    assert done.returncode == 1
    assert "an earlier version of Mnemon wrote" in done.stderr
    assert "`mnemon export`" in done.stderr
    assert file.read_bytes() == before
