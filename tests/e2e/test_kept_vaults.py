"""Data of an earlier release can be read: its data folder and its archive hold the same records."""

from collections import Counter
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
from mnemon import AsyncClient
from mnemon_server.engines.events.rows.text_words import CURRENT, FORMER
from mnemon_server.engines.sqlite.pages.database import MODE_READ
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier, find_records
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.support.databases import open_database
from tests.support.full_vault import answers, differences
from tests.support.kept_vault import archive, unpack
from tests.support.server import eventually, until, whole_server

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


async def test_the_first_data_folder_and_the_first_archive_agree(tmp_path: Path) -> None:
    lines = archive(1)
    async with (
        whole_server(unpack(1, tmp_path)) as kept,
        # The first data folder is from before metadata was searched with the text.
        whole_server(tmp_path / "new", search_metadata_keys=()) as new,
        AsyncClient(str(kept.server.address)) as old,
        AsyncClient(str(new.server.address)) as client,
    ):
        results = [result async for result in client.archive.import_(lines)]
        assert [result.error for result in results if result.error] == []

        assert list(differences(await answers(old), await answers(client))) == []


async def test_the_first_data_folder_holds_the_stored_records(tmp_path: Path) -> None:
    async with whole_server(unpack(1, tmp_path)) as server, AsyncClient(str(server.server.address)) as client:
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


async def test_the_events_of_the_first_data_folder_get_the_words_of_today(tmp_path: Path) -> None:
    folder = unpack(1, tmp_path)
    text_file = folder / "tenants/default/timeline-index/text.db"
    async with whole_server(folder) as server, AsyncClient(str(server.server.address)) as client:

        async def is_found() -> bool:
            found = await client.timeline.search("passports", since=LONG_AGO, user="ada", mode="keyword")
            return len(found.results) == 1

        def has_words_of_today() -> bool:
            # The file is deleted and made again.
            with suppress(apsw.CantOpenError), closing(open_database(text_file, flags=MODE_READ)) as connection:
                has_words = CURRENT.exist(connection) and CURRENT.part_counts(connection)
                return bool(has_words and not FORMER.exist(connection))
            return False

        # Until a thread has opened the file, all events count as pending.
        await eventually(is_found)
        await until(has_words_of_today)
        assert await is_found()


async def test_the_first_data_folder_passes_verification(tmp_path: Path) -> None:
    folder = unpack(1, tmp_path)
    async with whole_server(folder):
        pass  # brings it to the newest format
    [records] = find_records(folder)
    with RecordsVerifier(records, VaultKeyFile(records.parent)) as verifier:
        assert [damage for step in verifier.run() for damage in step.damages] == []
