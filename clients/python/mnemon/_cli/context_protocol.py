"""The command that serves the Model Context Protocol."""

import asyncio
from typing import Any

import click

from mnemon._cli.options import choice_of, labels
from mnemon._cli.session import Session
from mnemon._mcp.identity import Identity
from mnemon.shared.errors import ConfigurationError
from mnemon.shared.terminal import echo
from mnemon.shared.tool_definitions import ALL_ACTIONS
from mnemon.shared.version import __version__

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command("mcp")
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="Use stdin and stdout, or streamable HTTP.",
)
@click.option(
    "--host",
    type=click.Choice(_LOOPBACK),
    default=_LOOPBACK[0],
    show_default=True,
    help="The address to listen on, for http.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    help="The port to listen on, for http; 0 for any free port.",
)
@click.option("--namespace", default="", metavar="LABEL.LABEL", help="Where memories are kept, such as team.recipes.")
@click.option("--user", default="", help="Whose memories, documents and events are meant.")
@click.option("--agent", default="", help="The agent whose memories are meant.")
@click.option("--org", default="", help="The organisation whose memories are meant.")
@click.option("--shared-knowledge", is_flag=True, help="With --user, search the documents of all users.")
@click.option(
    "--action",
    "actions",
    type=choice_of(ALL_ACTIONS),
    multiple=True,
    help="What manage_memory may do; repeatable.  [default: all that the server permits]",
)
@click.pass_obj
def serve_mcp(session: Session, /, *, transport: str, host: str, port: int, namespace: str, **whose: Any) -> None:
    """Serve the memory tools, searches and recall to clients of the Model Context Protocol.

    Memories are stored in --namespace, otherwise in that of --org, --user and --agent, or in the server's own. Without
    --user, searches find the documents and events of all users. Anyone who can reach the port can use the tools: with
    this command's credential, or over HTTP with the one in their own header, Authorization: Bearer.
    """
    identity = Identity(namespace=labels(namespace) if namespace else (), time_zone=session.time_zone, **whose)
    try:
        identity.check()
    except ConfigurationError as error:
        raise click.UsageError(error.message) from error
    # These imports take a second, and wrong options are reported before.
    try:
        from mnemon._mcp.server import mcp_server
        from mnemon._mcp.serving import serve_http, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "uvicorn", "pydantic"):
            raise
        raise click.ClickException("mnemon mcp needs mcp; install it with: pip install 'mnemon-client[mcp]'") from error

    async def serve() -> None:
        async with session.asyncio_client() as client:
            server = mcp_server(client, identity, __version__)
            if transport == "stdio":
                await serve_stdio(server)
            else:
                await serve_http(server, host, port, lambda url: echo(f"serving on {url}", err=True))

    try:
        asyncio.run(serve())
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
