"""The command `mnemon-server verify-isolation`: tries on a running server to reach what belongs to others."""

import json
import os
import sys
from pathlib import Path

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.progress import progress
from mnemon_server.config.address import Address
from mnemon_server.config.loading import load_settings
from mnemon_server.domain.errors import MnemonError

_KEY_VARIABLE = "MNEMON_API_KEY"


@click.command("verify-isolation")
@click.option("--address", help="Address of the server; by default the one in the settings.")
@click.option(
    "--tenants", "count", type=click.IntRange(1, 100), default=2, show_default=True, help="How many to attack."
)
@click.option(
    "--ca", type=click.Path(path_type=Path, exists=True), help="PEM file with the certificate authority; enables TLS."
)
@click.option("--server-name", help="The name in the server's certificate, if it differs from the address.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_isolation(
    address: str | None, count: int, ca: Path | None, server_name: str | None, *, as_json: bool
) -> None:
    """Try on a running server to reach what belongs to others, and report what was reached.

    Makes tenants with records in them, calls every method with every credential that must not suffice, and deletes the
    tenants again. What other tenants have is not touched. MNEMON_API_KEY holds the key of an operator.

    The exit code is 1 if anything was reached or changed, and 2 if that could not be tried.
    """
    from mnemon_server.commands.isolation.trial import STEPS, Report, Trial
    from mnemon_server.transport.channels import channel_to

    report = Report()
    try:
        target = str(Address.parse(address or load_settings(environ=os.environ).settings.listen).dialled)
        with progress() as bar, channel_to(target, ca=ca, server_name=server_name) as channel:
            task = bar.add_task("Trying", total=count * STEPS)
            with Trial(channel, os.environ.get(_KEY_VARIABLE, ""), report, lambda: bar.advance(task)) as trial:
                for number in range(count):
                    trial.run(number)
            bar.update(task, completed=count * STEPS)
    except MnemonError as error:
        # The same leak may be what stops the trial.
        echo(f"mnemon-server: {error}", err=True)
        if not report.failures:
            sys.exit(2)
    if as_json:
        found = {
            "isolated": report.holds,
            "tried": report.tried,
            "failures": report.failures,
            "untried": report.untried,
        }
        echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for what, times in report.tried.items():
            broken = sum(each["check"] == what for each in report.failures)
            echo(f"{what}: {times:,} times{f', {broken:,} FAILED' if broken else ''}")
        for failure in report.failures:
            echo("FAILED {method} by the {caller}: {check}\n{found}".format_map(failure))
        for method in report.untried:
            echo(f"NOT TRIED {method}")
        echo("nothing was reached" if report.holds else "isolation does NOT hold")
    sys.exit(0 if report.holds else 1)
