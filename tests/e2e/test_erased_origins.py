"""An erasure of an origin takes records of all users and kinds, and leaves everything else."""

import json
from pathlib import Path

import pytest
from mnemon import AsyncClient, InvalidArgumentError, Scope

from tests.support.erasing import found_in, word
from tests.support.server import whole_server


async def test_what_comes_from_a_site_is_erased_whosever_it_is_and_nothing_else(tmp_path: Path) -> None:
    page, own = {"origin": "web", "origin_name": "page.example"}, {"origin": "user"}
    async with whole_server(tmp_path, erasure_delay_s=0.05) as one, AsyncClient(str(one.server.address)) as client:
        for name, source in (("page", page), ("site", page | {"origin_name": "other.example"}), ("own", own), ("", {})):
            said = f"{word(name, 'said')} was said"
            await client.documents.put(f"d{name}", said, scope=Scope(user="ada", **source))
            await client.memories.add(said, user="ada", **source)
            await client.semantic.add(said, user="ada", persona=name, **source)
            await client.facts.put(("shared",), f"f{name}", {"content": said}, **source)
            await client.timeline.add("note", said, user="ada", **source)
        # A version that came from there, of a record that no longer does.
        await client.documents.put("moved", f"{word('page', 'moved')}", scope=Scope(user="ada", **page))
        await client.documents.put("moved", "Written again.", scope=Scope(user="ada", **own))
        counted = await client.erasures.count(**page)
        assert {kind: counted[kind] for kind in ("document", "memory", "semantic", "fact", "event")} == {
            **dict.fromkeys(("document", "memory", "semantic", "fact", "event"), 1)
        }
        receipt = await client.erasures.run(**page)
        assert receipt.is_complete
        traces = {kind: word("page", kind).encode() for kind in ("said", "moved")}
        assert found_in(tmp_path, traces) == {}
        lines = str([line async for line in client.archive.export()])
        assert "page.example" not in lines
        assert all(lines.count(word(name, "said")) >= 5 for name in ("site", "own", ""))
        assert (await client.documents.get("moved")).content == "Written again."
        assert json.loads(receipt.text)["subject"]["kind"] == "origin"
        with pytest.raises(InvalidArgumentError, match=r"origin\.origin: must be one of 'user'"):
            await client.erasures.run(origin="press")
