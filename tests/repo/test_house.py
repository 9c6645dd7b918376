"""The rooms of the code and the arrows between them: no arrow runs up."""

import pytest

from tests.repo.house import FOLDERS, files_that_name, shape


@pytest.mark.parametrize("package", FOLDERS)
def test_no_two_rooms_need_each_other(package: str) -> None:
    seen = shape(package)
    assert seen.rooms > 5
    assert seen.up == ()


def test_the_files_that_name_a_field_are_found() -> None:
    named = {file.name for file in files_that_name("idempotent_replay")} | {
        f.name for f in files_that_name("personality")
    }
    assert {"memory.proto", "memories.py"} <= named
