"""The command that imports conversations, and its report."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.archive.files import GivenFile, files_of, opened, reading
from mnemon._cli.chat.errors import problem_of
from mnemon._cli.imports.found import Damaged, LeftOut, Place
from mnemon._cli.imports.turns import TURN_FORMS, Source, Turn, TurnForm, title_of, turn_form_of
from mnemon._cli.progress import BulkProgress
from mnemon._cli.session import Session
from mnemon.shared.errors import InvalidArgumentError, MessageExistsError, MessageTooLargeError, MnemonError
from mnemon.shared.terminal import counted, echo

_BATCH_MESSAGES_MAX = 200
_BATCH_CHARACTERS_MAX = 1 << 18
_CONVERSATIONS_SHOWN = 20
_WHATSAPP = "_chat.txt"
_COLUMNS = {"first": out.SHORT, "messages": out.NUMBER, "added": out.NUMBER, "conversation": out.REST}


@click.command("import")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--from", "system", type=click.Choice(list(TURN_FORMS)), help="Whose file it is; by default, its content tells."
)
@click.option(
    "--conversation",
    callback=opt.some,
    help="The conversation of messages that do not name one.  [default: the name of the file]",
)
@click.option(
    "--assistant",
    "assistants",
    multiple=True,
    metavar="NAME",
    help="The assistant, in a file without roles.",
)
@opt.collected("scope", opt.owner_options(user_required=True), opt.given_of)
@opt.json_option
def import_chats(
    session: Session,
    /,
    paths: tuple[str, ...],
    *,
    system: str | None,
    conversation: str | None,
    assistants: tuple[str, ...],
    scope: dict[str, Any],
) -> None:
    """Add the conversations in files: exports of ChatGPT, Claude and Telegram, messages of OpenAI, and transcripts.

    Of a folder, all files are read; those of unknown form are skipped. - is standard input. Messages are known by
    their ids, so importing the same file again adds nothing, and a later one adds what is new.
    """
    files = files_of(paths)
    report = _Report(session, names_files=len(files) > 1)
    for each in files:
        with opened(each.path) as file:
            try:
                form = TURN_FORMS[system or turn_form_of(file)]
            except ValueError as error:
                report.leave_out(each.path, error)
                continue
            if conversation and form.names_conversations:
                raise click.UsageError(f"--conversation: {form.about} names its conversations itself; leave it out")
            if assistants and form.has_roles:
                raise click.UsageError(f"--assistant is for transcripts; {form.about} has roles")
            source = Source(each.name, conversation or _name_of(each), assistants)
            report.begin(each, form)
            turns = [*report.turns_of(reading(each.path, form.read(file, source)))]
        with BulkProgress(session.error_console, "importing", len(turns), quiet=session.as_json) as progress:
            for turn, outcome in _stored(session, turns, scope):
                report.show(turn, outcome)
                progress.advance()
    report.show_summary()


def _name_of(file: GivenFile) -> str:
    """The name of a conversation. All exports of WhatsApp have the same file name, so the folder's name is added."""
    folder = Path(file.path).resolve().parent.name
    return f"{folder}/{file.name}" if file.name == _WHATSAPP and folder else file.name


_Outcome = bool | MnemonError
"""Whether a message was known already, or why it was refused."""


def _stored(session: Session, turns: list[Turn], scope: dict[str, Any]) -> Iterator[tuple[Turn, _Outcome]]:
    """Adds messages in their order, and yields the outcome of each."""
    batch: list[Turn] = []
    characters = 0
    for turn in turns:
        size = len(turn.message.content) + len(turn.message.payload)
        is_full = len(batch) == _BATCH_MESSAGES_MAX or characters + size > _BATCH_CHARACTERS_MAX
        if batch and (is_full or turn.conversation != batch[0].conversation):
            yield from _added(session, batch, scope)
            batch, characters = [], 0
        batch.append(turn)
        characters += size
    if batch:
        yield from _added(session, batch, scope)


def _added(session: Session, batch: list[Turn], scope: dict[str, Any]) -> Iterator[tuple[Turn, _Outcome]]:
    """Adds messages of one conversation. Of a batch that is refused, each half is tried: a message fails alone."""
    messages = [turn.message for turn in batch]
    try:
        receipts = session.client.conversations.append(batch[0].conversation, messages, **scope)
    except (InvalidArgumentError, MessageExistsError, MessageTooLargeError) as error:
        if len(batch) == 1:
            yield batch[0], error
            return
        middle = len(batch) // 2
        yield from _added(session, batch[:middle], scope)
        yield from _added(session, batch[middle:], scope)
    else:
        yield from zip(batch, (receipt.duplicate for receipt in receipts), strict=True)


@dataclass
class _Imported:
    """The result for one conversation."""

    title: str = ""
    first: datetime | None = None
    counts: Counter[str] = field(default_factory=Counter)


class _Report:
    """Counts and shows what happens to each message: sentences for people, JSON lines for programs."""

    def __init__(self, session: Session, *, names_files: bool) -> None:
        """`names_files`: name the file of each failure, for imports of several files."""
        self._session, self._names_files = session, names_files
        self._path, self._about = "", ""
        self._conversations: dict[str, _Imported] = {}
        self._counts: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def begin(self, file: GivenFile, form: TurnForm) -> None:
        """Starts a file, and names its form unless the previous file had the same."""
        self._path = file.path if self._names_files else ""
        if form.about != self._about:
            name = next(name for name, known in TURN_FORMS.items() if known is form)
            self._tell(f"reading {form.about} (--from {name})")
        self._about = form.about

    def leave_out(self, path: str, error: ValueError) -> None:
        """Counts a file of unknown form, which is an error if no other file is imported."""
        if not self._names_files:
            raise click.ClickException(f"{path}: {error}") from error
        self._left_out["files without known conversations"] += 1
        self._tell(f"left out: {path}: it holds no conversation that is known")

    def turns_of(self, found: Iterable[Turn | LeftOut | Damaged]) -> Iterator[Turn]:
        """The messages to add; skipped parts are counted, and damaged ones shown."""
        for each in found:
            match each:
                case Turn():
                    yield each
                case LeftOut():
                    self._left_out[each.reason] += each.count
                case Damaged():
                    self._fail(each.place, each.record_id, each.error)

    def show(self, turn: Turn, outcome: _Outcome) -> None:
        """Counts what became of a message, and shows why it was refused."""
        conversation = self._conversations.setdefault(turn.conversation, _Imported())
        conversation.title = conversation.title or str(title_of(turn.message))
        conversation.first = conversation.first or turn.message.message_time
        if isinstance(outcome, MnemonError):
            conversation.counts["failed"] += 1
            self._fail(turn.place, turn.message.message_id, outcome)
            return
        name = "known" if outcome else "added"
        conversation.counts[name] += 1
        self._counts[name] += 1

    def show_summary(self) -> None:
        """Prints the conversations and the counts, and exits with 1 if a message failed."""
        counts = {name: self._counts[name] for name in ("added", "known", "failed")}
        if self._session.as_json:
            for name, each in self._conversations.items():
                self._print({"conversation_id": name, "title": each.title, **each.counts})
            summary = {"conversations": len(self._conversations), **counts, "left_out": self._left_out}
            self._print({"summary": summary})
        else:
            self._show_conversations()
            said = [f"{number:,} {name}" for name, number in counts.items()]
            left_out = ", ".join(f"{number:,} {reason}" for reason, number in self._left_out.items())
            of = counted(len(self._conversations), "conversation")
            echo(f"messages of {of}: {', '.join(said)}" + (f"; left out: {left_out}" if left_out else ""))
        if self._counts["failed"]:
            raise SystemExit(1)

    def _show_conversations(self) -> None:
        rows = (
            [
                out.short_time(each.first),
                f"{each.counts.total():,}",
                f"{each.counts['added']:,}",
                out.record_lines(each.title, name, {}) if each.title else name,
            ]
            for name, each in islice(self._conversations.items(), _CONVERSATIONS_SHOWN)
        )
        if self._conversations:
            self._session.console.print(out.record_table(_COLUMNS, rows))
        if (more := len(self._conversations) - _CONVERSATIONS_SHOWN) > 0:
            echo(f"and {more:,} more: mnemon chat list")

    def _fail(self, place: Place, message_id: str, error: MnemonError) -> None:
        self._counts["failed"] += 1
        if self._session.as_json:
            where: Mapping[str, Any] = {"path": self._path, "line": place.line, "item": place.item, "id": message_id}
            self._print({**{name: value for name, value in where.items() if value}, "error": error.to_dict()})
            return
        file = f"{self._path}: " if self._path else ""
        item = f", item {place.item}" if place.item else ""
        problem = problem_of(error) if isinstance(error, InvalidArgumentError) else error.message
        self._tell(f"failed: {file}line {place.line}{item}{f' ({message_id})' if message_id else ''}: {problem}")

    def _print(self, line: Mapping[str, Any]) -> None:
        echo(json.dumps(line, ensure_ascii=False))

    def _tell(self, text: str) -> None:
        self._session.error_console.print(out.plain(text), soft_wrap=True)
