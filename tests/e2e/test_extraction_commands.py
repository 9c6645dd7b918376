"""The commands for the extraction from conversations, against a real server with a scripted model."""

from collections.abc import Iterator

import pytest
from mnemon import Client

from tests.support.command import run, run_json
from tests.support.extractors import model, repeating, statement
from tests.support.server import server_process, wait_until
from tests.support.tool_endpoints import ToolServer, tool_server

FLAGS = ("--knowledge-store-backend", "local", "--extract-model", "scripted", "--extract-quiet-s", "0")


@pytest.fixture(scope="module")
def served() -> Iterator[ToolServer]:
    with tool_server(model(repeating)) as found:
        yield found


@pytest.fixture(scope="module")
def address(served: ToolServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    endpoint = f"http://127.0.0.1:{served.port}/v1"
    with server_process(tmp_path_factory.mktemp("data"), *FLAGS, "--extract-endpoint", endpoint) as running:
        yield running.address()


def test_a_preview_shows_each_statement_with_what_would_become_of_it(address: str, served: ToolServer) -> None:
    found = [statement("Ada likes tea.", importance=0.4), statement("Ada has a dog.")]
    served.answer = model(lambda _: {"statements": found, "summary": "About Ada."})
    with Client(address) as client:
        client.semantic.add("Ada likes tea.", user="ada")
        client.conversations.append("c1", [{"role": "user", "content": "I have a dog, and like tea."}], user="ada")
        shown = run(address, "bridge", "preview", "c1", "--user", "ada")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert [*map(str.split, filter(str.strip, shown.stdout.splitlines()))][-3:] == [
            ["Ada", "likes", "tea.", "known", "already"],
            ["0.5", "Ada", "has", "a", "dog.", "new"],
            ["summary:", "About", "Ada."],
        ]
        [whole] = run_json(address, "bridge", "preview", "c1", "--user", "ada", "--extract", "model")
        assert [each["content"] for each in whole["statements"]] == ["Ada likes tea.", "Ada has a dog."]
        assert "nothing to keep in 0 messages" in run(address, "bridge", "preview", "other", "--user", "ada").stdout
        served.answer = model(lambda _: "nonsense")
        refused = run(address, "bridge", "preview", "c1", "--user", "ada")
        assert refused.returncode == 1
        assert "the extractor's answer was refused (not_json): it is not JSON" in refused.stderr
        assert [each.content for each in client.semantic.list(user="ada")] == ["Ada likes tea."]


def test_the_policy_turns_it_on_and_the_status_tells_what_was_extracted(address: str, served: ToolServer) -> None:
    served.answer = model(repeating)
    assert "extract" in run(address, "bridge", "policy", "--extract", "model").stdout
    with Client(address) as client:
        client.conversations.append("c2", [{"role": "user", "content": "I moved to Bern."}], user="ben")
        wait_until(lambda: [each.content for each in client.semantic.list(user="ben")] == ["I moved to Bern."])
    shown = run(address, "bridge", "status").stdout
    assert "1 statement of 1 message, 0 waiting" in shown
    refused = run(address, "bridge", "policy", "--extract", "service")
    assert refused.returncode == 1 and "this server has no extract_service" in refused.stderr
