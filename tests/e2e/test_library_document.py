"""The page about the protocols as a library: its examples run, and it names every setting.

`make type` checks the types of the examples.
"""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from mnemon_server.config.settings import Settings

from tests.support.page_examples import EXAMPLES, PAGE, PROGRAM


def test_the_examples_run_as_printed(tmp_path: Path) -> None:
    environment = os.environ | {"KNOWLEDGE_STORE_BACKEND": "local", "MNEMON_DATA_DIR": str(tmp_path / "data")}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = [line for line in ran.stdout.splitlines() if not re.match(r"\d{4}-\d\d-\d\d", line)]
    assert said == "".join(each.printed or "" for each in EXAMPLES).splitlines()


def test_every_setting_of_the_store_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))
    of_the_store = re.compile(
        r"knowledge_store|chroma|collection$|data_dir$|embedding|fusion|search|exact_scan|vector_cache"
    )
    settings = {field.name for field in fields(Settings) if of_the_store.match(field.name)}
    assert len(settings) >= 25
    assert settings - named == set()
    aliases = {field.metadata.get("also") for field in fields(Settings)} - {None, ""}
    assert {str(each) for each in aliases} <= named
