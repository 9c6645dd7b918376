"""Namespaces with dots in their labels, such as mail addresses and names of models, through every part of a vault."""

import json
from pathlib import Path
from uuid import UUID

from mnemon import Mnemon

MAIL = ("user", "ada@example.org")


def test_users_with_dots_in_their_names_keep_search_export_and_erase_their_facts(tmp_path: Path) -> None:
    config = {"user_id": "ada@example.org", "agent_id": "gpt-4.1"}
    with Mnemon(tmp_path / "one", embedding_model="hashing") as memory:
        memory.tools.call("manage_memory", {"content": "Ada likes green tea."}, config=config)
        [found] = json.loads(memory.tools.call("search_memory", {"query": "tea"}, config=config).content)
        assert found["namespace"] == [*MAIL, "agent", "gpt-4.1"]
        for labels in (("user", "ada@example", "org"), ("user", "ada@example\\", "org"), ("user", 7), (UUID(int=7),)):
            memory.facts.put(labels, "k", {"content": "Another one."})
        others = [(str(UUID(int=7)),), ("user", "7"), ("user", "ada@example", "org"), ("user", "ada@example\\", "org")]
        assert sorted(memory.facts.list_namespaces()) == sorted([(*MAIL, "agent", "gpt-4.1"), *others])
        assert list(memory.facts.list_namespaces(prefix=MAIL, max_depth=2)) == [MAIL]
        archive = list(memory.archive.export())

        memory.erasures.run(user="ada@example.org")
        assert sorted(memory.facts.list_namespaces()) == sorted(others)
    with Mnemon(tmp_path / "two", embedding_model="hashing") as memory:
        assert {result.error for result in memory.archive.import_(archive)} == {None}
        assert [fact.namespace for fact in memory.facts.list(MAIL, subtree=True)] == [(*MAIL, "agent", "gpt-4.1")]
