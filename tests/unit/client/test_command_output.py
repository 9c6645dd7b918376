"""Option values get the type that they look like, and a bulk command shows its progress."""

import io
from pathlib import Path

import click
import pytest
from mnemon import FilterValue
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
