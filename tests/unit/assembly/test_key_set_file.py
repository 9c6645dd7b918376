"""When the file of a key set has to be read again."""

import json
import os
import time
from pathlib import Path

import pytest
from mnemon_server.assembly.identities import KeySetFile
from mnemon_server.services.access.key_sets import KeySetError


def written(path: Path, value: object, *, seconds_ago: float) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
    os.utime(path, (moment := time.time() - seconds_ago, moment))


def test_a_file_is_the_same_once_its_time_would_tell_a_change(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    file = KeySetFile(path)
    assert not file.is_unchanged()
    # A minute later is "just now" too, however slow the test is.
    written(path, 1, seconds_ago=-60)
    assert file.read() == 1
    assert not file.is_unchanged(), "another change in the same moment would have the same time"
    written(path, 2, seconds_ago=60)
    assert file.read() == 2
    assert file.is_unchanged()
    written(path, 3, seconds_ago=30)
    assert not file.is_unchanged()
    path.unlink()
    assert not file.is_unchanged()
    with pytest.raises(KeySetError):
        file.read()
