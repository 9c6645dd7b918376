"""The command that changes a document in part."""

from typing import TextIO

import click

from mnemon._cli.options import as_mapping, json_option, key_value, scope_options
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values import documents as values


@click.command()
@click.argument("doc_id")
@click.option("--content", help="The new text.")
@click.option(
    "--file", type=click.File(encoding="utf-8"), help="Take the new text from this file; - is standard input."
)
@click.option(
    "--set",
    "set_metadata",
    type=key_value,
    metavar="KEY=VALUE",
    multiple=True,
    callback=as_mapping,
    help='Metadata to set; repeatable. true, false and numbers keep their type; "quotes" make it text.',
)
@click.option("--unset", "remove_metadata", metavar="KEY", multiple=True, help="Metadata to remove; repeatable.")
@scope_options
@json_option
@click.pass_obj
def update(
    session: Session,
    doc_id: str,
    scope: values.Scope,
    content: str | None,
    file: TextIO | None,
    *,
    set_metadata: dict[str, values.MetadataValue],
    remove_metadata: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change the given fields of the document DOC_ID, and keep the others."""
    parts = {name: part for name, part in scope.to_dict().items() if part}
    if content is not None and file is not None:
        raise click.UsageError("give the text with --content or with --file, not both")
    if content is None and file is None and not (set_metadata or remove_metadata or parts):
        raise click.UsageError("say what to change: --content, --file, --set, --unset or a scope such as --project")
    receipt = session.client.documents.update(
        doc_id,
        content=file.read() if file else content,
        set_metadata=set_metadata,
        remove_metadata=remove_metadata,
        scope=parts or None,
    )
    echo(receipt.to_json() if as_json else f"{receipt.outcome} {doc_id}, revision {receipt.revision}")
