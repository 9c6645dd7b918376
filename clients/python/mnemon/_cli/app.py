"""The command group: the connection, and how errors are shown."""

import re
from typing import Any

import click
from click.core import ParameterSource

from mnemon._channel import ADDRESS_VARIABLE, DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S
from mnemon._cli import events, facts, history, memories, rules, server, statements, tools
from mnemon._cli import options as opt
from mnemon._cli.archive.commands import export_archive
from mnemon._cli.archive.import_command import import_files
from mnemon._cli.chat.commands import chat
from mnemon._cli.context_protocol import serve_mcp
from mnemon._cli.documents import commands as documents
from mnemon._cli.documents.index import index
from mnemon._cli.grants import grants
from mnemon._cli.profiles import PROFILE_VARIABLE, ProfileError, read_profile
from mnemon._cli.quarantine import quarantine
from mnemon._cli.recall import recall
from mnemon._cli.session import Session
from mnemon._cli.watching import show_changes, watch
from mnemon._local_time import days_in
from mnemon.shared.errors import MnemonError, ServerUnreachableError
from mnemon.shared.terminal import Seconds, printable
from mnemon.shared.version import __version__

# gRPC's prefix before the cause: what failed, a status, and the address again.
_CAUSE = re.compile(r"^(.*last error: )?([A-Z_]+: )?((ipv4|ipv6|unix):\S+: )?")


_FILE = click.Path(exists=True, dir_okay=False)

_SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Recall: one question about all that is stored": (recall,),
    "Documents: texts and files under ids of your own": (
        *(index, documents.search, documents.get, documents.list_documents, documents.count),
        *(documents.update, documents.delete, documents.rebuild_index),
    ),
    "Memories: single sentences, whose confidence may decay": (
        *(memories.remember, memories.remembered, memories.list_memories),
        *(memories.reinforce, memories.forget, memories.forecast),
    ),
    "Statements: what is true of a user, without duplicates and contradictions": (
        *(statements.learn, statements.similar, statements.known, statements.unlearn),
        *(statements.list_decisions, statements.unmerge, rules.rules, statements.index_status),
    ),
    "Conversations: what was said, and what to read before an answer": (chat,),
    "Events: what happened when": (
        *(events.record, events.show_timeline, events.happened, events.summary),
        *(events.prune, events.compact, events.timeline_status, events.bridge),
    ),
    "Facts: JSON objects under keys, which the tools of language models use": (facts.facts, tools.tools, serve_mcp),
    "All of it": (
        history.versions,
        history.restore,
        watch,
        show_changes,
        export_archive,
        import_files,
        server.back_up,
        server.erase,
        quarantine,
    ),
    "The server, and who may use it": (
        documents.health,
        server.info,
        server.whoami,
        server.keys,
        grants,
        server.tenants,
    ),
}
"""The commands, by the kind of record that each is for; the keys say in the help what that is."""


class MnemonGroup(click.Group):
    """A group whose commands print one clear line when a call fails."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command; exit code 1 if a call failed, 130 if the person stopped it."""
        try:
            return super().invoke(ctx)
        except MnemonError as error:
            raise click.ClickException(printable(_sentence(error) + ctx.obj.hint(error))) from error
        except click.ClickException as error:
            # It may quote a file, or an answer.
            vars(error).update(message=printable(error.message + _hint_of_options(error)))
            raise
        except KeyboardInterrupt:
            ctx.exit(130)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by their kind: an alphabetical list would hide which go together."""
        width = max(len(name) for name in self.commands)
        for heading, commands in _SECTIONS.items():
            with formatter.section(heading):
                limit = formatter.width - formatter.current_indent - width - 2
                rows = [(f"{each.name:{width}}", each.get_short_help_str(limit)) for each in commands]
                formatter.write_dl(rows)


def _sentence(error: MnemonError) -> str:
    if isinstance(error, ServerUnreachableError):
        where, _, cause = error.message.partition(": ")
        cause = _CAUSE.sub("", cause)
        return (
            f"{where} ({cause}). Start one with `make serve` or `mnemon-server serve`, "
            f"or name another with --address or {ADDRESS_VARIABLE}."
        )
    if error.incident_id:
        return f"{error.message} (incident {error.incident_id}, see the server's log)"
    return error.message


def _hint_of_options(error: click.ClickException) -> str:
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    if any(error.option_name in each.opts for each in error.ctx.find_root().command.params):
        return f" It goes before the command: mnemon {error.option_name} …"
    # The parser takes "- milk" and "-5 °C" for options.
    is_likely = " " in error.option_name or not error.possibilities
    takes_arguments = any(isinstance(each, click.Argument) for each in error.ctx.command.params)
    hint = " An argument that begins with a hyphen goes after all options and --."
    return hint if is_likely and takes_arguments else ""


@click.group(cls=MnemonGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mnemon")
@click.option(
    "--address",
    envvar=ADDRESS_VARIABLE,
    default=DEFAULT_ADDRESS,
    show_default=True,
    show_envvar=True,
    help="Server to talk to: host:port or unix:path.",
)
@click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Maximum duration of a call, in seconds.",
)
@click.option(
    "--wait",
    type=Seconds(min=0),
    default=0.0,
    help="Seconds to wait until the server is ready, such as one that is starting.",
)
@click.option("--tls", is_flag=True, help="Use TLS with the system's root certificates.")
@click.option("--ca", "ca_file", type=_FILE, help="Use TLS with the roots of this PEM file.")
@click.option("--certificate", "certificate_file", type=_FILE, help="Use TLS with your certificate, a PEM file.")
@click.option("--key", "key_file", type=_FILE, help="The private key of your certificate, a PEM file.")
@click.option("--insecure", is_flag=True, help="Allow plaintext to another machine.")
@click.option(
    "--time-zone",
    type=opt.time_zone,
    default="",
    envvar="MNEMON_TIME_ZONE",
    show_envvar=True,
    metavar="NAME",
    help="The zone of days and times, such as Europe/Berlin.  [default: that of this machine]",
)
@click.option(
    "--profile",
    envvar=PROFILE_VARIABLE,
    show_envvar=True,
    help="Connect as this profile in profiles.toml says; other options say more.",
)
@click.pass_context
def mnemon(context: click.Context, /, profile: str | None, wait: float, time_zone: str, **arguments: Any) -> None:
    """Index documents, remember facts, learn about users and record what happens, and find it all again."""
    try:
        chosen = read_profile(profile) if profile else {}
    except ProfileError as error:
        raise click.UsageError(str(error), context) from error
    given = {name: value for name, value in arguments.items() if _is_option(context, name) or name not in chosen}
    context.with_resource(days_in(time_zone))
    context.obj = Session(context, {**chosen, **given}, wait_s=wait, time_zone=time_zone)


def _is_option(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


for _commands in _SECTIONS.values():
    for _command in _commands:
        mnemon.add_command(_command)
