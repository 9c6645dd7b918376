"""Grants: records that callers share with each other, from the grant to its end."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon import Scope
from mnemon_server.domain.access.grants import GRANTS_PER_SUBJECT_MAX

from tests.e2e.test_bound_feeds import take
from tests.e2e.test_bounds import People, fill, people
from tests.support.access import key_id, make_key
from tests.support.command import run
from tests.support.server import ServerProcess, eventually

GARDEN = Scope("ada", project="garden")
ADAS = ("users", "ada")


async def fill_garden(client: mnemon.AsyncClient) -> str:
    """Records of every kind in a project of ada, and one beside it; returns the id of a memory."""
    await client.documents.put("plan", "Tomatoes grow by the wall.", scope=GARDEN)
    await client.documents.put("diary", "Tomatoes make Ada sad.", scope=Scope("ada"))
    memory = await client.remember("The tomatoes need water.", type="note", user="ada", project="garden")
    await client.semantic.add("Ada waters the tomatoes on Mondays.", user="ada", project="garden")
    await client.timeline.add("work", "Ada planted tomatoes.", user="ada", project="garden", event_id="planted")
    said = [mnemon.ConversationMessage("user", "The tomatoes are ripe.", message_id="ripe")]
    await client.conversations.append("harvest", said, user="ada", project="garden")
    await client.facts.put(("users", "ada", "garden"), "bed", {"tomatoes": 12})
    return memory.memory_id


async def seen(client: mnemon.AsyncClient) -> set[str]:
    """The records of the garden that a caller finds, by kind, through each door that reads."""
    try:
        found = {str(item.record.kind) for item in await client.recall("tomatoes", user="ada", project="garden")}
    except mnemon.PermissionDeniedError:
        found = set()
    found |= {f"document {each.doc_id}" async for each in client.documents.list()}
    found |= {f"memory {each.content}" async for each in client.memories.list()}
    found |= {f"fact {each.key}" async for each in client.facts.list(subtree=True)}
    return found


EVERYTHING = {
    *("document", "memory", "semantic", "event"),
    *("document plan", "memory The tomatoes need water.", "fact bed"),
}


@asynccontextmanager
async def another(each: People, folder: Path, role: str, *flags: str) -> AsyncIterator[mnemon.AsyncClient]:
    """A caller with a further key."""
    secret = await asyncio.to_thread(make_key, folder, role, *flags)
    async with mnemon.AsyncClient(str(each.connection.server.address), api_key=secret) as client:
        await eventually(lambda: _knows(client))
        yield client


async def _knows(client: mnemon.AsyncClient) -> bool:
    try:
        await client.who_am_i()
    except mnemon.UnauthenticatedError:
        return False
    return True


async def test_what_is_granted_is_found_from_its_acceptance_to_its_revocation_by_the_subject_alone(
    tmp_path: Path,
) -> None:
    async with people(tmp_path) as each, another(each, tmp_path, "writer", "--user", "eve") as eve:
        await fill_garden(each.ada)
        grants = [
            await each.ada.grants.add("user:bob", scope=GARDEN),
            await each.ada.grants.add("user:bob", namespace=(*ADAS, "garden")),
        ]
        assert await seen(each.bob) == set()
        assert [grant.accept_time for grant in grants] == [None, None]
        for grant in grants:
            accepted = await each.bob.grants.accept(grant.grant_id)
            assert accepted.accept_time is not None
        assert await seen(each.bob) == EVERYTHING
        assert await seen(eve) == set()
        assert (await each.bob.documents.get("plan")).content == "Tomatoes grow by the wall."
        said = [one async for one in each.bob.conversations.messages("harvest", user="ada", project="garden")]
        assert [one.message_id for one in said] == ["ripe"]
        with pytest.raises(mnemon.DocumentNotFoundError):
            await each.bob.documents.get("diary")
        await each.bob.grants.revoke(grants[0].grant_id)
        assert await seen(each.bob) == {"fact bed"}
        await each.ada.grants.revoke(grants[1].grant_id)
        assert await seen(each.bob) == set()
        with pytest.raises(mnemon.GrantNotFoundError, match="no grant has the id"):
            await each.ada.grants.revoke(grants[1].grant_id)
        await each.ada.grants.revoke(grants[1].grant_id, allow_missing=True)


async def test_a_grant_to_read_allows_no_write_and_one_to_write_allows_each_in_its_part(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        memory_id = await fill_garden(each.ada)
        await each.admin.grants.add("user:bob", scope=GARDEN)
        await each.admin.grants.add("user:bob", namespace=(*ADAS, "garden"))

        async def writes() -> list[Any]:
            calls = [
                each.bob.documents.put("plan", "Weeds.", scope=GARDEN),
                each.bob.documents.put("bobs-plan", "Peas grow, too.", scope=GARDEN),
                each.bob.memories.update(memory_id, content="The tomatoes need no water."),
                each.bob.remember("Bob dug.", type="note", user="ada", project="garden"),
                each.bob.semantic.add("Bob digs on Sundays.", user="ada", project="garden"),
                each.bob.timeline.add("work", "Bob dug.", user="ada", project="garden"),
                each.bob.facts.put((*ADAS, "garden"), "bed", {"tomatoes": 13}),
                each.bob.facts.delete((*ADAS, "garden"), "bed"),
                each.bob.documents.delete("plan"),
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

        refused = await writes()
        assert [type(one) for one in refused] == [mnemon.PermissionDeniedError] * len(refused)
        assert {str(one) for one in refused} == {
            "this is shared with you for reading only; ask its owner for a grant to write"
        }
        await each.admin.grants.add("user:bob", scope=GARDEN, access="write")
        await each.admin.grants.add("user:bob", namespace=(*ADAS, "garden"), access="write")
        assert [one for one in await writes() if isinstance(one, Exception)] == []
        assert (await each.ada.memories.get(memory_id)).content == "The tomatoes need no water."
        with pytest.raises(mnemon.PermissionDeniedError, match="must be 'bob' or 'ada' with project 'garden'"):
            await each.bob.documents.put("other", "Not in the garden.", scope=Scope("ada"))
        with pytest.raises(mnemon.PermissionDeniedError, match=r"within 'users\.bob' or 'users\.ada\.garden'"):
            await each.bob.facts.put(ADAS, "other", {})


async def test_deleting_by_filter_keeps_what_others_share_unless_their_user_is_named(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        await fill_garden(each.ada)
        await fill(each.bob, "bob")
        await each.admin.grants.add("user:bob", scope=GARDEN, access="write")
        await each.admin.grants.add("user:bob", namespace=ADAS, access="write")
        everything = mnemon.F("create_time") > datetime(2020, 1, 1, tzinfo=UTC)
        await each.bob.memories.purge(where=everything)
        await each.bob.facts.delete_many((), subtree=True)
        assert await each.bob.memories.count(user="bob") == 0
        assert [one.content async for one in each.bob.memories.list()] == ["The tomatoes need water."]
        assert [one.key async for one in each.bob.facts.list(subtree=True)] == ["bed"]
        await each.bob.memories.purge(where=everything, user="ada", project="garden")
        await each.bob.facts.delete_many(ADAS, subtree=True)
        assert await each.ada.memories.count() == 0
        assert [one async for one in each.ada.facts.list(subtree=True)] == []


async def test_a_recall_finds_all_that_is_shared_and_says_whose_words_they_are(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        for project in ("garden", "vacation"):
            said = [mnemon.ConversationMessage("user", f"I sowed carrots before the {project}.")]
            await each.ada.conversations.append(project, said, user="ada", project=project)
            await each.admin.grants.add("user:bob", scope=Scope("ada", project=project))
        await each.admin.grants.add("user:bob", scope=Scope("ada", household="home"))
        await each.bob.timeline.add("note", "I sowed peas.", user="bob")
        theirs = {"I sowed carrots before the garden.", "I sowed carrots before the vacation."}
        everything = await each.bob.recall("Who sowed what?")
        assert {item.content for item in everything} == {*theirs, "I sowed peas."}
        lines = sorted(line.partition("] ")[2] for line in everything.context.splitlines())
        assert [line[11:] for line in lines] == [
            *(f"(ada) user: {each}" for each in sorted(theirs)),
            "I sowed peas.",
        ]
        assert {item.content for item in await each.bob.recall("Who sowed what?", user="ada")} == theirs
        assert "(ada)" not in (await each.ada.recall("Who sowed what?")).context
        assert "(ada)" in (await each.admin.recall("Who sowed what?")).context
        with pytest.raises(
            mnemon.InvalidArgumentError, match="'ada' with project 'garden' or 'ada' with project 'vacation'"
        ):
            await each.bob.timeline.summarize(user="ada")


async def test_the_timeline_of_a_share_without_events_is_said_to_be_empty_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with people(tmp_path) as each:
        for project in ("garden", "vacation"):
            await each.admin.grants.add("user:bob", scope=Scope("ada", project=project))
        monkeypatch.setenv("MNEMON_API_KEY", each.bobs_secret)
        address = str(each.connection.server.address)
        done = await asyncio.to_thread(run, address, "timeline", "--user", "ada", "--project", "garden")
        assert (done.returncode, done.stdout, done.stderr) == (0, "nothing happened\n", "")
        done = await asyncio.to_thread(run, address, "timeline", "--user", "ada")
        assert (done.returncode, done.stdout) == (1, "")
        assert "'ada' with project 'garden' or 'ada' with project 'vacation'" in done.stderr


async def test_what_is_shared_for_writing_stays_its_owners(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        memory_id = await fill_garden(each.ada)
        await each.admin.grants.add("user:bob", scope=GARDEN, access="write")
        for call in (
            each.bob.documents.put("plan", "Pancakes."),
            each.bob.documents.update("plan", scope=Scope("bob")),
            each.bob.memories.update(memory_id, user="bob"),
            each.bob.memories.update(memory_id, user=""),
        ):
            with pytest.raises(mnemon.PermissionDeniedError, match="belongs to 'ada', who shares it with you"):
                await call
        [refused] = [one async for one in each.bob.documents.put_many([mnemon.Document("plan", "Pancakes.")])]
        assert isinstance(refused.error, mnemon.PermissionDeniedError)
        await each.bob.documents.put("plan", "Tomatoes grow by the fence.", scope=GARDEN)
        assert (await each.ada.documents.get("plan")).scope == GARDEN
        await each.admin.erasures.run(user="ada")
        assert [one async for one in each.admin.documents.list()] == []


async def test_a_deletion_that_names_more_than_what_is_shared_keeps_that(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        await fill_garden(each.ada)
        await each.bob.facts.put(("users", "bob", "notes"), "own", {"a": 1})
        for access in ("write", "read"):
            await each.admin.grants.add("user:bob", namespace=(*ADAS, "garden"), access=access)
            for place in ((), ("users",)):
                counted = await each.bob.facts.delete_many(place, subtree=True, dry_run=True)
                assert counted.deleted_count == 1, (access, place)
        assert (await each.bob.facts.delete_many(("users",), subtree=True)).deleted_count == 1
        assert [one.key async for one in each.ada.facts.list(subtree=True)] == ["bed"]
        for dry_run in (True, False):
            with pytest.raises(mnemon.PermissionDeniedError, match="for reading only"):
                await each.bob.facts.delete_many((*ADAS, "garden"), dry_run=dry_run)


async def test_an_event_beside_a_private_one_is_no_duplicate_of_it(tmp_path: Path) -> None:
    when = datetime(2026, 11, 5, 12, tzinfo=UTC)
    async with people(tmp_path) as each:
        private = await each.ada.timeline.add("health", "Ada saw a lawyer.", user="ada", event_time=when)
        await each.admin.grants.add("user:bob", scope=GARDEN, access="write")
        written = [
            await each.bob.timeline.add("health", "Ada saw a lawyer.", user="ada", project="garden", event_time=when)
            for _ in range(2)
        ]
        assert [one.duplicate for one in written] == [False, True]
        assert written[0].event_id != private.event_id
        told = [one.event_id async for one in each.bob.timeline.list(user="ada", project="garden")]
        assert told == [written[0].event_id]
        with pytest.raises(mnemon.EventExistsError):
            await each.bob.timeline.add("health", "x", user="ada", project="garden", event_id=private.event_id)


async def test_an_archive_does_not_bring_a_revoked_grant_back(tmp_path: Path) -> None:
    async with people(tmp_path / "data") as each:
        made = await each.admin.grants.add("user:bob", scope=GARDEN, access="write")
        lines = [line async for line in each.admin.archive.export()]
        await each.admin.grants.revoke(made.grant_id)
        results = [one async for one in each.admin.archive.import_(lines)]
        assert [grant async for grant in each.admin.grants.list()] == [], results
        again = await each.admin.grants.add("user:bob", scope=GARDEN)
        assert [grant async for grant in each.admin.grants.list()] == [again]


async def test_pending_grants_do_not_keep_others_from_granting(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        for number in range(GRANTS_PER_SUBJECT_MAX + 1):
            await each.ada.grants.add("user:bob", scope=Scope("ada", project=f"p{number}"))
        await each.admin.grants.add("user:bob", scope=Scope("carl"))
        listed = [grant async for grant in each.bob.grants.list()]
        for grant in listed[: GRANTS_PER_SUBJECT_MAX - 1]:
            await each.bob.grants.accept(grant.grant_id)
        with pytest.raises(mnemon.InvalidOperationError, match="the subject has 128 grants"):
            await each.bob.grants.accept(listed[GRANTS_PER_SUBJECT_MAX - 1].grant_id)


async def test_callers_grant_only_what_they_own_and_see_only_grants_that_concern_them(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        each = await stack.enter_async_context(people(tmp_path))
        writer = await stack.enter_async_context(another(each, tmp_path, "writer"))
        reader = await stack.enter_async_context(another(each, tmp_path, "reader", "--user", "ada"))
        scraper = await stack.enter_async_context(another(each, tmp_path, "writer", "--user", "ada", "--origin", "web"))
        capped = await stack.enter_async_context(another(each, tmp_path, "writer", "--origin", "web"))
        made = await each.ada.grants.add("user:bob", scope=Scope(project="garden"), access="write")
        assert made.scope == GARDEN
        await each.bob.grants.accept(made.grant_id)
        refusals = [
            (each.bob.grants.add("user:eve", scope=GARDEN), "your credential is not bound to all of it"),
            (each.bob.grants.add("user:eve", namespace=("users",)), "your credential is not bound to all of it"),
            (writer.grants.add("user:eve", scope=Scope("ada")), "managed by admins"),
            (reader.grants.add("user:eve", scope=Scope("ada")), "needs the role writer"),
            (scraper.grants.add("user:eve", scope=Scope("ada")), "limited to origins"),
            (each.ada.grants.accept(made.grant_id), "only a caller to whom it was granted can accept it"),
        ]
        for call, message in refusals:
            with pytest.raises(mnemon.PermissionDeniedError, match=message):
                await call
        other = await each.admin.grants.add("user:eve", scope=Scope("bob"))
        assert other.accept_time is not None and made.accept_time is None
        listed = {
            name: [grant.grant_id async for grant in client.grants.list()]
            for name, client in {
                "admin": each.admin,
                "ada": each.ada,
                "bob": each.bob,
                "reader": reader,
                "scraper": scraper,
                "capped": capped,
                "writer": writer,
            }.items()
        }
        both = [made.grant_id, other.grant_id]
        assert listed == {
            "admin": both,
            "ada": [made.grant_id],
            "bob": both,
            "reader": [made.grant_id],
            "scraper": [made.grant_id],
            "capped": [],
            "writer": [],
        }
        with pytest.raises(mnemon.GrantNotFoundError):
            await each.ada.grants.revoke(other.grant_id)
        page = await each.admin.grants.list_page(page_size=1)
        assert [grant.grant_id for grant in page.grants] == [made.grant_id]
        page = await each.admin.grants.list_page(page_size=1, page_token=page.next_page_token)
        assert ([grant.grant_id for grant in page.grants], page.next_page_token) == ([other.grant_id], "")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"subject": "bob", "scope": GARDEN},
            'must be a user or a caller as WhoAmI names it, one of "user:…"',
        ),
        ({"subject": "user:", "scope": GARDEN}, "subject: must be a user"),
        ({"subject": "", "scope": GARDEN}, "subject: is required"),
        ({"subject": "user:*", "scope": GARDEN}, "subject: must name one user"),
        ({"subject": "key:1f3a5c7e9b0d2f46", "scope": GARDEN}, "subject: names no API key of this tenant"),
        ({"subject": "user:ada", "scope": GARDEN}, "subject: must not be the user whose records are shared"),
        ({"subject": "user:bob"}, "scope: must be set, or namespace"),
        ({"subject": "user:bob", "scope": GARDEN, "namespace": ADAS}, "scope: must be set, or namespace"),
        ({"subject": "user:bob", "scope": Scope(project="garden")}, "scope.user: must name the user"),
        ({"subject": "user:bob", "scope": Scope("ada", origin="web")}, "scope.origin: must be empty"),
        ({"subject": "user:bob", "namespace": ("users", "")}, r"namespace\[1\]: must not be empty"),
        (
            {"subject": "user:bob", "scope": GARDEN, "expire_time": datetime(2020, 1, 1, tzinfo=UTC)},
            "expire_time: must be in the future",
        ),
    ],
)
async def test_a_grant_that_makes_no_sense_is_refused(tmp_path: Path, asked: dict[str, Any], message: str) -> None:
    async with people(tmp_path) as each:
        with pytest.raises(mnemon.InvalidArgumentError, match=message):
            await each.admin.grants.add(**asked)
        assert [grant async for grant in each.admin.grants.list()] == []


async def test_a_grant_ends_when_it_says_and_can_be_renewed_in_place(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        await fill_garden(each.ada)
        soon = datetime.now(UTC) + timedelta(seconds=1)
        made = await each.admin.grants.add("user:bob", scope=GARDEN, expire_time=soon)
        await eventually(lambda: _found(each.bob, "plan"))
        await eventually(lambda: _lost(each.bob, "plan"))
        assert datetime.now(UTC) >= soon
        assert [grant async for grant in each.bob.grants.list()] == []
        again = await each.ada.grants.add("user:bob", scope=GARDEN)
        assert (again.grant_id, again.accept_time, again.expire_time) == (made.grant_id, None, None)
        await each.bob.grants.accept(again.grant_id)
        later = datetime.now(UTC) + timedelta(days=1)
        renewed = await each.ada.grants.add("user:bob", scope=GARDEN, expire_time=later, access="write")
        assert (renewed.expire_time, renewed.access) == (later, "write")
        assert await _found(each.bob, "plan"), "a renewed grant stays accepted"


async def test_a_search_that_names_a_user_leaves_out_what_others_share_with_that_user(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        await fill_garden(each.ada)
        await each.bob.documents.put("bobs", "Bob likes tomatoes.")
        await each.admin.grants.add("user:bob", scope=GARDEN)
        for scope, expected in ((Scope(), {"plan", "bobs"}), (Scope("bob"), {"bobs"}), (GARDEN, {"plan"})):
            found = await each.bob.documents.search("tomatoes", scope=scope)
            assert {hit.doc_id for hit in found} == expected
            given = {name: text for name, text in scope.to_dict().items() if text}
            recalled = await each.bob.recall("tomatoes", kinds=["document"], **given)
            assert {item.record.id for item in recalled} == expected


async def test_a_grant_ends_at_the_end_of_a_day_or_after_a_distance(tmp_path: Path) -> None:
    last = datetime(2099, 1, 31, 23, 59, 59, 999999).astimezone()
    async with people(tmp_path) as each:

        async def ends(given: Any) -> datetime:
            expire_time = (await each.admin.grants.add("user:bob", scope=GARDEN, expire_time=given)).expire_time
            assert expire_time
            return expire_time

        for day in (date(2099, 1, 31), "2099-01-31", last):
            assert await ends(day) == last
        for distance in (timedelta(days=7), "7d", "1 week"):
            before = datetime.now(UTC)
            end = await ends(distance)
            assert before <= end - timedelta(days=7) <= datetime.now(UTC)
        with pytest.raises(mnemon.InvalidArgumentError, match="expire_time: must be a datetime, a date, a timedelta"):
            await ends("soon")


async def _found(client: mnemon.AsyncClient, doc_id: str) -> bool:
    try:
        await client.documents.get(doc_id)
    except mnemon.DocumentNotFoundError:
        return False
    return True


async def _lost(client: mnemon.AsyncClient, doc_id: str) -> bool:
    return not await _found(client, doc_id)


async def test_a_grant_to_a_user_is_for_callers_of_this_user_alone_and_one_to_a_key_for_the_key(tmp_path: Path) -> None:
    async with people(tmp_path) as each, another(each, tmp_path, "reader", "--user", "bob", "--user", "eve") as both:
        await fill_garden(each.ada)
        await each.admin.grants.add("user:bob", scope=GARDEN)
        assert (await _found(each.bob, "plan"), await _found(both, "plan")) == (True, False)
        name = (await both.who_am_i()).subject
        await each.admin.grants.add(name, scope=Scope("ada"))
        assert (await _found(both, "plan"), await _found(both, "diary")) == (True, True)
        assert (await _found(each.bob, "plan"), await _found(each.bob, "diary")) == (True, False)


async def test_an_open_watch_follows_grants_without_an_end(tmp_path: Path) -> None:
    async with people(tmp_path) as each, each.bob.changes.watch(full=True) as watch:

        async def put(doc_id: str) -> None:
            await each.ada.documents.put(doc_id, "Tomatoes.", scope=GARDEN)
            await each.bob.documents.put(f"after {doc_id}", "Mine.")

        await put("before")
        assert [one.record_id for one in await take(watch, "after before")] == ["after before"]
        made = await each.admin.grants.add("user:bob", scope=GARDEN)
        await put("during")
        assert [one.record_id for one in await take(watch, "after during")] == ["during", "after during"]
        await each.ada.grants.revoke(made.grant_id)
        await put("later")
        assert [one.record_id for one in await take(watch, "after later")] == ["after later"]


async def test_grants_go_with_an_erased_user_or_namespace_whichever_side_it_is_on(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        kept = await each.admin.grants.add("user:eve", scope=Scope("bob"))
        for subject, what in (
            ("user:eve", {"scope": Scope("ada")}),
            ("user:ada", {"scope": Scope("bob")}),
            ("jwt:login:ada", {"scope": Scope("bob")}),
            ("user:eve", {"namespace": (*ADAS, "notes")}),
        ):
            await each.admin.grants.add(subject, **what)
        counted = await each.admin.erasures.count(user="ada")
        assert counted["grant"] == 4
        receipt = await each.admin.erasures.run(user="ada")
        assert receipt.counts["grant"] == 4
        assert [grant.grant_id async for grant in each.admin.grants.list()] == [kept.grant_id]
        await each.admin.grants.add("user:eve", namespace=("users", "bob", "notes"))
        assert (await each.admin.erasures.run(namespace=("users", "bob"))).counts["grant"] == 1
        assert [grant.grant_id async for grant in each.admin.grants.list()] == [kept.grant_id]


async def test_grants_are_there_again_after_the_server_was_killed(tmp_path: Path) -> None:
    admin, bob = make_key(tmp_path, "admin"), make_key(tmp_path, "reader", "--user", "bob")
    flags = ("--authentication", "api_key")
    server = ServerProcess(tmp_path, *flags)
    async with mnemon.AsyncClient(server.address(), api_key=admin) as client:
        await client.documents.put("plan", "Tomatoes.", scope=GARDEN)
        made = await client.grants.add(f"key:{key_id(bob)}", scope=GARDEN)
    server.signal(signal.SIGKILL)
    server.end()
    server = ServerProcess(tmp_path, *flags)
    try:
        async with mnemon.AsyncClient(server.address(), api_key=bob) as client:
            assert (await client.documents.get("plan")).content == "Tomatoes."
            assert [grant async for grant in client.grants.list()] == [made]
    finally:
        server.end()


async def test_a_retry_beside_a_grant_gets_the_first_answer(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        first = await each.bob.documents.put("mine", "Mine.", request_id="once")
        made = await each.admin.grants.add("user:bob", scope=GARDEN, access="write")
        again = await each.bob.documents.put("mine", "Mine.", request_id="once")
        assert (again.replayed, again.revision) == (True, first.revision)
        during = await each.bob.documents.put("other", "Mine.", request_id="twice")
        await each.bob.grants.revoke(made.grant_id)
        again = await each.bob.documents.put("other", "Mine.", request_id="twice")
        assert (again.replayed, again.revision) == (True, during.revision)
