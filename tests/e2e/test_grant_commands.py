"""`mnemon grants`: what people read and type to share records."""

import asyncio
import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.access import guarded_server, make_key
from tests.support.command import Done, run


async def test_a_grant_is_made_accepted_listed_and_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {name: make_key(tmp_path, "writer", "--user", name, "--namespace", name) for name in ("ada", "bob")}
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)

        async def typed(who: str, *words: str) -> Done:
            monkeypatch.setenv("MNEMON_API_KEY", secrets[who])
            return await asyncio.to_thread(run, address, *words)

        assert (await typed("ada", "grants", "list")).stderr == "no grants\n"
        made = await typed(
            "ada", "grants", "create", "user:bob", "--user", "ada", "--project", "garden", "--until", "30d"
        )
        assert made.returncode == 0, made.stderr
        said = re.fullmatch(
            r"(\w{32})  user:bob may read user ada project garden, granted by key:\w{16}, "
            r"ends \d{4}-\d\d-\d\d \d\d:\d\d, not accepted yet\n",
            made.stdout,
        )
        assert said
        await typed("ada", "remember", "The tomatoes need water.", "--user", "ada", "--project", "garden")
        assert "tomatoes" not in (await typed("bob", "recall", "tomatoes")).stdout
        accepted = await typed("bob", "grants", "accept", said[1])
        assert (accepted.returncode, "not accepted" in accepted.stdout) == (0, False)
        assert "tomatoes" in (await typed("bob", "recall", "tomatoes")).stdout
        facts = await typed("ada", "grants", "create", "user:bob", "--namespace", "ada.garden", "--write", "--json")
        assert (json.loads(facts.stdout)["namespace"], json.loads(facts.stdout)["access"]) == (
            ["ada", "garden"],
            "write",
        )
        assert [each["subject"] for each in json.loads((await typed("bob", "grants", "list", "--json")).stdout)] == [
            "user:bob",
            "user:bob",
        ]
        revoked = await typed("bob", "grants", "revoke", said[1])
        assert revoked.stdout == f"the grant {said[1]} is revoked\n"
        assert "tomatoes" not in (await typed("bob", "recall", "tomatoes")).stdout
        [line] = (await typed("bob", "grants", "list")).stdout.splitlines()
        assert re.search(r"user:bob may write namespace ada\.garden, granted by key:\w{16}, not accepted yet$", line)


async def test_a_grant_is_shown_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path, "admin"))
    async with guarded_server(tmp_path) as connection:

        async def typed(*words: str) -> Done:
            return await asyncio.to_thread(run, str(connection.server.address), "grants", *words)

        namespace = r"users.ada@example\.org"
        made = await typed("create", "user:bob\n0  user:eve", "--namespace", namespace, "--write", "--read")
        assert re.fullmatch(
            r"\w{32}  user:bob\\u000a0  user:eve may read namespace users\.ada@example\\.org, granted by key:\w{16}\n",
            made.stdout,
        )
        assert (await typed("list")).stdout == made.stdout
        again = await typed("create", "user:bob\n0  user:eve", "--namespace", namespace, "--json")
        assert json.loads(again.stdout)["grant_id"] == made.stdout[:32]
        for words, code in (((), 0), ((), 1), (("--allow-missing",), 0)):
            assert (await typed("revoke", made.stdout[:32], *words)).returncode == code
        assert (await typed("list")).stdout == ""


async def test_a_grant_until_a_day_lasts_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path, "admin"))
    async with guarded_server(tmp_path) as connection:
        made = await asyncio.to_thread(
            run,
            str(connection.server.address),
            *("grants", "create", "user:bob", "--user", "ada", "--until", "2099-01-31", "--json"),
        )
        ends = datetime.fromisoformat(json.loads(made.stdout)["expire_time"])
        assert ends == datetime(2099, 1, 31, 23, 59, 59, 999999).astimezone()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("user:bob",), "scope: must be set, or namespace for facts; only one of the two"),
        (("bob", "--user", "ada"), 'must be a user or a caller as WhoAmI names it, one of "user:…"'),
        (("user:bob", "--user", "eve"), "your credential is not bound to all of it"),
        (("user:bob", "--user", "ada", "--until", "soon"), "soon"),
    ],
)
async def test_a_slip_gets_a_sentence_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path, "writer", "--user", "ada"))
    async with guarded_server(tmp_path) as connection:
        done = await asyncio.to_thread(run, str(connection.server.address), "grants", "create", *words)
        assert done.returncode != 0
        assert message in done.stderr


async def test_indexing_a_folder_leaves_what_others_share_from_a_folder_of_the_same_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    secrets = {name: make_key(tmp_path, "writer", "--user", name) for name in ("ada", "bob")}
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)

        async def typed(who: str, *words: str | Path) -> Done:
            monkeypatch.setenv("MNEMON_API_KEY", secrets[who])
            return await asyncio.to_thread(run, address, *words)

        async def indexed(who: str, name: str, *words: str) -> Done:
            for each in folder.iterdir():
                each.unlink()
            (folder / name).write_text(f"The notes of {who}.", encoding="utf-8")
            return await typed(who, "index", folder, *words)

        await indexed("ada", "hers.txt")
        for access in ((), ("--write",)):
            made = await typed("ada", "grants", "create", "user:bob", "--user", "ada", "--json", *access)
            await typed("bob", "grants", "accept", json.loads(made.stdout)["grant_id"])
            for words in ((), ("--prune",), ("--user", "bob", "--prune")):
                done = await indexed("bob", "his.txt", *words)
                assert (done.returncode, done.stderr, "gone" in done.stdout) == (0, "", False)
        assert "; 1 pruned" in (await indexed("bob", "new.txt", "--prune")).stdout
        assert "; 1 gone" in (await indexed("ada", "new.txt", "--id-prefix", "ada/")).stdout
        shown = await typed("ada", "get", "hers.txt", "--json")
        assert json.loads(shown.stdout)["content"] == "The notes of ada."
