"""Option values get the type that they look like, and stored text cannot control a terminal."""

import io
from pathlib import Path

import click
import pytest
from mnemon import Document, FilterValue, Passage, SearchAnswer, SearchDiagnostics, SearchMode, SearchResult
from mnemon._cli.documents.commands import document_sheet, search_table
from mnemon._cli.options import key_value
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon.v1 import common_pb2, knowledge_store_pb2, memory_pb2
from rich.console import Console

from tests.support.command import run
from tests.unit.client.scripted_server import scripted_server


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=true", True),
        ("k=false", False),
        ("k=True", "True"),
        ("k=5", 5),
        ("k=-5", -5),
        ("k=007", "007"),
        ("k=5.0", 5.0),
        ("k=1e3", 1000.0),
        ("k=1.2.3", "1.2.3"),
        ("k=nan", "nan"),
        ('k="5"', "5"),
        ('k="', '"'),
        ("k=", ""),
        ("k=a=b", "a=b"),
    ],
)
def test_a_value_has_the_type_that_it_looks_like(text: str, value: FilterValue) -> None:
    key, found = key_value(text)

    assert (key, found, type(found)) == ("k", value, type(value))


@pytest.mark.parametrize("text", ["topic", "=travel", ""])
def test_an_invalid_pair_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="topic=travel"):
        key_value(text)


def shown(renderable: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def answer(content: str, passage: Passage | None = None) -> SearchAnswer:
    result = SearchResult(Document("note-1", content), 0.5, "chromadb", passage=passage)
    return SearchAnswer((result,), (), SearchDiagnostics(SearchMode.HYBRID, True, 1, 1, 0, "", 0.0))


def test_the_matching_passage_is_shown() -> None:
    text = shown(search_table(answer("Before. The passage. After.", Passage(1, 8, 20))), 80)

    assert "The passage." in text
    assert "Before" not in text
    assert "0.500" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_the_width(width: int) -> None:
    lines = shown(search_table(answer("word " * 300)), width).splitlines()

    assert max(len(line) for line in lines) <= width
    assert "…" in "".join(lines)


def test_markup_in_a_document_is_text() -> None:
    assert "[bold]loud[/bold]" in shown(search_table(answer("[bold]loud[/bold] [link=x]y[/link]")), 80)


def test_terminal_escapes_in_a_document_are_made_harmless() -> None:
    document = Document("id\x1b]0;x\x07", "a\x1b[2Jb\u202ec\x9bd", {"k": "\x1b[31m"})

    text = shown(document_sheet(document), 80)

    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert "a\\u001b[2Jb" in text


def test_an_empty_result_says_so() -> None:
    empty = SearchAnswer((), (), SearchDiagnostics(SearchMode.HYBRID, True, 0, 0, 0, "", 0.0))

    assert shown(search_table(empty), 80).strip() == "nothing found"


@pytest.mark.parametrize(("content", "lines"), [(b"", 0), (b"a\nb\n", 2), (b"a\nb", 2)])
def test_the_number_of_lines_in_a_file_is_known_beforehand(tmp_path: Path, content: bytes, lines: int) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(content)

    assert count_lines(str(path)) == lines
    assert count_lines("-") == 0


@pytest.mark.parametrize(("total", "said"), [(1200, "1,000 of 1,200 done\n"), (0, "1,000 done\n")])
def test_without_a_terminal_every_thousandth_item_is_reported(
    capsys: pytest.CaptureFixture[str], total: int, said: str
) -> None:
    with BulkProgress(Console(file=io.StringIO()), "storing", total, quiet=False) as progress:
        for _ in range(1200):
            progress.advance()

    assert capsys.readouterr().err == said


def test_a_bar_shows_the_total_and_the_remaining_time() -> None:
    screen = io.StringIO()
    with BulkProgress(Console(file=screen, force_terminal=True, width=100), "storing", 4, quiet=False) as progress:
        progress.advance()

    assert "1/4" in screen.getvalue()
    assert "0/4" in screen.getvalue() and "-:--:--" in screen.getvalue()


def test_health_waits_until_the_server_has_started_if_it_is_told_to() -> None:
    states = [common_pb2.STATE_STARTING, common_pb2.STATE_READY]

    def answer(request: object, context: object) -> object:
        is_of_documents = isinstance(request, knowledge_store_pb2.CheckHealthRequest)
        state = states.pop(0) if is_of_documents and len(states) > 1 else states[0]
        kind = knowledge_store_pb2.CheckHealthResponse if is_of_documents else memory_pb2.GetStatusResponse
        return kind(state=state)

    with scripted_server(answer) as (address, _):
        waited = run(address, "--wait", "60", "health")
        assert (waited.returncode, "starting" in waited.stdout) == (0, False)
        states[:] = [common_pb2.STATE_STARTING]
        assert run(address, "health").returncode == 0
        # On a busy machine, the server may not have answered in so short a time.
        too_late = [run(address, "--wait", seconds, "health") for seconds in ("0.3", "3")]
        assert [done.returncode for done in too_late] == [1, 1]
        assert any("still starting" in done.stderr for done in too_late)
