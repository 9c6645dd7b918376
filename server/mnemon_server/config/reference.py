"""The page that lists all settings."""

from mnemon_server.config.loading import CONFIG_FILE_VARIABLE
from mnemon_server.config.settings import SETTINGS
from mnemon_server.config.values import Setting, Texts


def render_markdown() -> str:
    """The table for people. `server/CONFIGURATION.md` is this text."""
    lines = [
        "# Configuration",
        "",
        "All settings of `mnemon-server`. A flag overrides an environment variable, which overrides the file",
        f"that `--config` or `{CONFIG_FILE_VARIABLE}` names (TOML, with the names below as keys), which overrides the",
        "default.",
        "`mnemon-server check-config` prints each value and its origin.",
        "",
        "This page is printed by `mnemon-server check-config --markdown`.",
        "",
        "| setting | default | environment | flag | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *(_render_row(row) for row in SETTINGS.values())]) + "\n"


def _render_row(row: Setting) -> str:
    shown = row.show(row.default)
    default = f"`{shown}`" if shown else ""
    variables = ", ".join(f"`{name}`" for name in row.variables)
    named = ", ".join(f"`{choice}`" for choice in row.choices)
    flag = f"`{row.flag}`" if row.flag else ""
    choices = f" {'Any' if row.type == Texts else 'One'} of {named}." if named else ""
    return f"| `{row.name}` | {default} | {variables} | {flag} | {row.help}{choices} |"
