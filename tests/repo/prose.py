"""Comments, errors and paragraphs of two commits side by side, chosen at random, to hear how they read.

    python -m tests.repo.prose BEFORE AFTER [--seed 7] [--count 10]

The same seed chooses the same texts of a commit each time.
"""

import ast
import io
import random
import re
import subprocess
import tarfile
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from itertools import groupby

import click

from tests.support.repository import ROOT

CODE = re.compile(r"(server/mnemon_server|clients/python/mnemon)/(?!v1/).*\.py")
PRAGMA = re.compile(r"# *(noqa|type:|pragma|ruff|mypy|!)")
NO_PROSE = re.compile(r"^([#|>]|    |```|- \[|<!--)")
PARAGRAPH_MIN = 80
COLUMNS = 100

Files = dict[str, str]


def files_of(commit: str) -> Files:
    """The text of each Python file of the products, and of each document."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        texts = [each for each in members if CODE.fullmatch(each.name) or each.name.endswith(".md")]
        return {each.name: file.read().decode() for each in texts if (file := members.extractfile(each))}


def comments(files: Files) -> Iterator[str]:
    """Comments; adjacent lines count as one."""
    for text in (text for name, text in files.items() if name.endswith(".py")):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        own = [each for each in tokens if each.type == tokenize.COMMENT and not PRAGMA.match(each.string)]
        for _, block in groupby(enumerate(own), lambda each: each[1].start[0] - each[0]):
            yield " ".join(each.string.lstrip("#").strip() for _, each in block)


def errors(files: Files) -> Iterator[str]:
    """Texts of errors, with placeholders in braces."""
    for text in (text for name, text in files.items() if name.endswith(".py")):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and re.search(r"(Error|Violation|Error\.of)$", ast.unparse(node.func)):
                for value in (*node.args, *(word.value for word in node.keywords)):
                    if isinstance(value, ast.JoinedStr | ast.Constant) and " " in (said := _said(value)):
                        yield said


def _said(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_said(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def paragraphs(files: Files) -> Iterator[str]:
    """Paragraphs of documents, without headings, tables and commands."""
    for text in (text for name, text in files.items() if name.endswith(".md")):
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for part in re.split(r"\n\s*\n|\n(?=[-*] )", prose):
            if len(part) > PARAGRAPH_MIN and not NO_PROSE.match(part.lstrip("\n")):
                yield " ".join(part.split())


KINDS: dict[str, Callable[[Files], Iterator[str]]] = {
    "comments": comments,
    "errors": errors,
    "paragraphs": paragraphs,
}


def chosen(files: Files, kind: str, seed: int, count: int) -> list[str]:
    """So many different texts of a kind, by a seed."""
    texts = sorted(set(KINDS[kind](files)))
    return random.Random(f"{seed} {kind}").sample(texts, min(count, len(texts)))


@click.command(help=__doc__)
@click.argument("before")
@click.argument("after")
@click.option("--seed", default=7, show_default=True, help="Chooses the texts.")
@click.option("--count", default=10, show_default=True, help="How many of each kind.")
def main(before: str, after: str, seed: int, count: int) -> None:
    """Prints the texts."""
    commits = {commit: files_of(commit) for commit in (before, after)}
    for kind in KINDS:
        click.echo(f"\n{kind}\n{'=' * len(kind)}")
        pairs = zip(*(chosen(files, kind, seed, count) for files in commits.values()), strict=False)
        for number, texts in enumerate(pairs, start=1):
            for label, text in zip(("before", "after"), texts, strict=True):
                click.echo(textwrap.fill(f"{number:2} {label + ':':8}{text}", COLUMNS, subsequent_indent=" " * 11))


if __name__ == "__main__":
    main()
