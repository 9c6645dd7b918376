"""Information about the server."""

import json

import click
from rich.console import RenderableType

from mnemon._cli.options import json_option
from mnemon._cli.render import field_table
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values.server import ServerInfo


@click.command()
@json_option
@click.pass_obj
def info(session: Session, *, as_json: bool) -> None:
    """Show information about the server: version, capabilities, limits, embedding model and vault."""
    found = session.client.server_info()
    if as_json:
        echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        session.console.print(info_table(found))


def info_table(found: ServerInfo) -> RenderableType:
    """Information about the server."""
    model, limits = found.embedding_model, found.limits
    return field_table(
        {
            "version": found.version,
            "API": f"mnemon.v1, revision {found.api_revision}",
            "vault": found.vault_id,
            "model": f"{model.name} {model.precision}, {model.dimension} dimensions, {limits.embedding_tokens} tokens",
            "capabilities": ", ".join(each.replace("_", " ") for each in found.capabilities),
            "messages": f"{_mib(limits.message_bytes)}, answers {_mib(limits.answer_bytes)}, texts "
            f"{_mib(limits.content_bytes)}; {limits.bulk_requests:,} requests of a stream at once",
            "pages": f"{limits.page_size:,} records",
            "calls at once": f"{limits.unary_calls:,}, and {limits.streams:,} streams",
            "deadline": f"{limits.default_deadline_s:g} s where a client names none",
            "changes": f"kept for {limits.change_retention_s / 86_400:g} days",
        }
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):g} MiB"
