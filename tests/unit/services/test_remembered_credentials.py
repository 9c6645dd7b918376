"""What is remembered of credentials."""

import gc

import pytest
from mnemon_server.services.access import remembered
from mnemon_server.services.access.remembered import Remembered


def test_what_was_found_out_last_is_remembered_of_as_many_credentials_as_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered, "REMEMBERED_MAX", 2)
    known: Remembered[int] = Remembered()
    for number, credential in enumerate(("first", "second", "first", "third")):
        assert known.keep(credential, number) == number
    assert [known.get(each) for each in ("first", "second", "third", "fourth")] == [2, None, 3, None]
    known.clear()
    assert known.get("third") is None


def test_no_credential_is_kept() -> None:
    known: Remembered[int] = Remembered()
    known.keep("a secret", 1)
    reached: list[object] = [known]
    for each in reached:
        reached += [one for one in gc.get_referents(each) if isinstance(one, dict | bytes | str) and one not in reached]
    assert any(isinstance(each, bytes) for each in reached)
    assert not any(b"a secret" in each for each in reached if isinstance(each, bytes))
    assert "a secret" not in reached
