"""Names of time zones."""

import pytest
from mnemon_server.domain.clock import time_zone


@pytest.mark.parametrize("name", ["Europe/Berlin", "europe/berlin", "CET", "utc", "Asia/Kathmandu", "Etc/GMT-14"])
def test_a_zone_has_a_name_of_the_iana_database(name: str) -> None:
    assert str(time_zone(name)).lower() == name.lower()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Mars/Olympus",
            "+02:00",
            "CET-1CEST",
            " ",
            "Berlin",
            "Europe",
            "Europe/Berlin ",
            "Europe/Berlin\0",
            "İstanbul",
        ),
        # Paths, and what means the zone of this machine.
        *("../etc/passwd", "/etc/localtime", "localtime", "Europe/../Europe/Berlin", "a" * 1_000_000),
    ],
)
def test_nothing_else_is_a_zone(name: str) -> None:
    assert time_zone(name) is None
