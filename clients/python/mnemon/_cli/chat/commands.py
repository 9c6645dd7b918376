"""The commands for conversations: what was said, and what a model should read before it answers."""

import shlex
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.chat.errors import named_as_options
from mnemon._cli.chat.importing import import_chats
from mnemon._cli.session import Session
from mnemon._messages.recall import RECALLED
from mnemon._values import conversations as values
from mnemon._values.documents import MetadataValue
from mnemon.shared.terminal import counted

_SHOWN = 20
_MESSAGES_MAX = 1000
_INDENT = "  "
_USUAL_ORIGINS = {"user": ("user",), "assistant": ("agent",), "tool": ("tool",)}
"""By role; any other origin is shown."""
_whose = opt.collected("scope", opt.owner_options(user_required=True), opt.given_of)
_some_whose = opt.collected("scope", opt.owner_options(), opt.given_of)
_conversation = click.argument("conversation", type=opt.visible)


@click.group()
def chat() -> None:
    """Keep conversations: what was said, in order, and what a model should read before it answers."""


@chat.command()
@_conversation
@click.argument("text", type=opt.text_or_stdin)
@_whose
@click.option("--role", default="user", show_default=True, callback=opt.some, help="Who speaks: user, assistant, …")
@click.option("--name", default="", help="The name of the speaker.")
@click.option("--id", "message_id", default="", help="Its id in the conversation.  [default: a new one]")
@click.option("--happened", "message_time", type=opt.past, metavar="TIME|AGE", help="When it was said.  [default: now]")
@click.option("--importance", type=click.FloatRange(0, 1), help="How much it matters.")
@opt.meta_option("message")
@opt.json_option
def add(
    session: Session,
    /,
    conversation: str,
    text: str,
    *,
    scope: dict[str, Any],
    metadata: dict[str, MetadataValue],
    **fields: Any,
) -> None:
    """Add TEXT at the end of CONVERSATION; - reads standard input.

    A message whose --id the conversation has is not stored again.
    """
    message = values.ConversationMessage(content=text, metadata=metadata, **fields)
    with named_as_options():
        [receipt] = session.client.conversations.append(conversation, [message], **scope)
    outcome = "known already:" if receipt.duplicate else "added"
    out.show(session, receipt, f"{outcome} {receipt.message_id}")


@chat.command("show")
@_conversation
@_whose
@opt.limit_option(_SHOWN)
@opt.json_option
def show_messages(session: Session, conversation: str, *, scope: dict[str, Any], limit: int) -> None:
    """Show the last messages of CONVERSATION, oldest first, with the ids that `mnemon chat delete` takes."""
    if limit >= _MESSAGES_MAX:
        raise click.UsageError(f"--limit must be below {_MESSAGES_MAX:,}; 0 shows all messages")
    # One more than is shown says whether there are earlier ones.
    last = limit + 1 if limit else 0
    with named_as_options():
        found = session.client.conversations.messages(conversation, last=last, page_size=_MESSAGES_MAX, **scope)
        first = next(found, None)
        if first is None:
            listed = f"`mnemon chat list --user {shlex.quote(scope['user'])}` lists the others"
            raise click.ClickException(f"{scope['user']} has no conversation {conversation!r} in this scope; {listed}")
        found = chain([first], found)
        is_cut = limit and len(messages := [*found]) > limit
        shown = iter(messages[-limit:]) if limit else found
        out.show_list(session, shown, partial(transcript, shows_ids=True), limit=0)
    if is_cut:
        out.note("there are earlier ones; --limit 0 shows all")


@chat.command("list")
@_some_whose
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def list_conversations(session: Session, *, scope: dict[str, Any], limit: int) -> None:
    """List conversations, the one with the newest message first."""
    with named_as_options():
        found = session.client.conversations.list(page_size=out.page_size_of(limit), **scope)
        out.show_list(session, found, conversation_table, limit=limit)


@chat.command()
@_conversation
@_whose
@click.option("--query", default="", help="What to recall for.  [default: the last messages]")
@click.option("--max-tokens", type=click.IntRange(1, 1_000_000), help="Maximum size of it all.  [default: 4000]")
@click.option(
    "--max-messages", type=click.IntRange(1, _MESSAGES_MAX), help="Maximum number of messages.  [default: 20]"
)
@click.option("--kind", "kinds", type=opt.choice_of(RECALLED), multiple=True, help="Recall only this kind; repeatable.")
@click.option("--namespace", type=opt.labels, metavar="LABEL.LABEL", help="Recall the facts in and below this one.")
@click.option("--min-relevance", type=click.FloatRange(0, 1), default=0.0, help="Recall nothing below this relevance.")
@opt.min_trust_option
@opt.json_option
def context(session: Session, /, conversation: str, *, scope: dict[str, Any], **how: Any) -> None:
    """Show what a model should read before it answers in CONVERSATION: summary, what is recalled, the last messages."""
    with named_as_options():
        zone = session.time_zone
        found = session.client.conversations.context(conversation, time_zone=zone, **opt.given_of(how), **scope)
    out.show(session, found, context_sheet)


@chat.command()
@_conversation
@_whose
@click.option(
    "--message", "message_ids", multiple=True, metavar="ID", help="Only the message with this id; repeatable."
)
@click.option("--last", type=click.IntRange(1, _MESSAGES_MAX), help="Only so many messages at the end.")
@click.option("--after", default="", metavar="ID", help="Only the messages after this one.")
@click.option("--allow-missing", is_flag=True, help="Succeed if there is no such conversation or message.")
@opt.yes_option
@opt.json_option
def delete(
    session: Session,
    /,
    conversation: str,
    *,
    scope: dict[str, Any],
    yes: bool,
    allow_missing: bool,
    **which: Any,
) -> None:
    """Permanently remove CONVERSATION with all of its events, or only some of its messages."""
    chosen = {name: value for name, value in which.items() if value}
    if len(chosen) > 1:
        raise click.UsageError("give one of --message, --last and --after")
    if not yes:
        what = "these messages of" if chosen else "all of"
        click.confirm(f"Remove {what} {conversation} of {scope['user']} for good?", abort=True, err=True)
    conversations = session.client.conversations
    remove = conversations.delete_messages if chosen else conversations.delete
    with named_as_options():
        receipt = remove(conversation, allow_missing=allow_missing, **chosen, **scope)
    noun = "message" if chosen else "event"
    out.show(session, receipt, f"removed {counted(receipt.deleted_count, noun)}")


# Tables and transcripts


def conversation_table(found: Iterable[values.Conversation]) -> RenderableType:
    """Conversations, with their titles, numbers of messages and the times of their newest ones."""
    columns = {"last": out.SHORT, "messages": out.NUMBER, "conversation": out.REST}
    rows = (
        [
            out.short_time(each.last_message_time),
            f"{each.message_count:,}",
            out.record_lines(each.title, each.conversation_id, each.scope.to_dict()),
        ]
        for each in found
    )
    return out.record_table(columns, rows, "no conversations")


def transcript(messages: Iterable[values.ConversationMessage], *, shows_ids: bool = False) -> RenderableType:
    """Messages to read: who said it and when, then the words, indented so that no text can pass for a message."""
    found = [part for message in messages for part in _turn(message, shows_ids=shows_ids)]
    return Group(*found) if found else Text("no messages")


def _turn(message: values.ConversationMessage, *, shows_ids: bool) -> Iterator[RenderableType]:
    role = f"{message.role}, in answer to {message.tool_call_id}" if message.tool_call_id else message.role
    speaker = f"{message.name} ({role})" if message.name else role
    # What a tool says, or an assistant, is known from the role.
    is_usual = message.origin in ("", *_USUAL_ORIGINS.get(message.role, ()))
    source = "" if is_usual else f"  from {message.origin} {message.origin_name}".rstrip()
    head = out.plain(f"{speaker}  {out.short_time(message.message_time)}".rstrip() + source, "bold")
    yield head + out.plain(f"  id={message.message_id}", "dim") if shows_ids else head
    calls = (f"calls {call.name} with {call.arguments or 'nothing'}" for call in message.tool_calls)
    yield _Indented("\n".join(filter(None, (message.content.strip(), *calls))))


def context_sheet(found: values.ConversationContext) -> RenderableType:
    """The context for a model, part by part."""
    parts: list[RenderableType] = []
    if found.summary:
        parts += [_head("Summary", found.summary_time), _Indented(found.summary)]
    if found.recall and found.recall.context:
        parts += [_head("Recalled"), _Indented(found.recall.context)]
    earlier = f", after {counted(found.earlier_message_count, 'earlier one')}" if found.earlier_message_count else ""
    parts += [_head(f"Messages{earlier}"), _Indented(transcript(found.messages))]
    return Group(*parts, _head(f"{found.tokens:,} tokens ({found.tokenizer})"))


def _head(text: str, time: datetime | None = None) -> Text:
    return out.plain(f"{text}  {out.short_time(time)}".rstrip(), "underline")


class _Indented:
    """A text whose lines are indented, also where the terminal breaks them, and not padded at their ends."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = out.plain(inner) if isinstance(inner, str) else inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        narrower = options.update_width(max(1, options.max_width - len(_INDENT)))
        for line in console.render_lines(self._inner, narrower, pad=False):
            yield Segment(_INDENT)
            yield from line
            yield Segment.line()


chat.add_command(import_chats)
