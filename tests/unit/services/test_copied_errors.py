"""Errors shared by several callers, each of whom gets a separate copy."""

import pytest
from mnemon_server.domain.damage import PageDamagedError
from mnemon_server.domain.errors import EventExistsError, InvalidArgumentError, MnemonError, RecordDamagedError
from mnemon_server.services.writing.writes import copy_of


@pytest.mark.parametrize(
    "error",
    [
        PageDamagedError("records.db", [15]),
        RecordDamagedError("document", "d1"),
        EventExistsError("e1"),
        InvalidArgumentError.of("user", "must have at most 128 characters"),
    ],
)
def test_a_copy_of_an_error_says_the_same(error: MnemonError) -> None:
    copied = copy_of(error)
    assert copied is not error
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
