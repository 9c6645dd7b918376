"""Callers by their certificates, when time passes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mnemon_server.domain.access import Credentials, Principal, Role
from mnemon_server.domain.errors import UnauthenticatedError
from mnemon_server.services.access.certificates import Certificates

from tests.support.certificates import Authority

NAME = "dns:robot.test"


def test_a_certificate_that_expires_on_an_open_connection_is_valid_no_longer(tmp_path: Path) -> None:
    pem, _ = Authority(tmp_path).issue("robot", NAME, ends_in=timedelta(hours=1))
    now = datetime.now(UTC)
    certificates = Certificates(clock=lambda: now)
    certificates.trust({NAME: Principal("acme", f"mtls:{NAME}", Role.READER)})
    shown = Credentials(certificate=pem.read_bytes())
    found = certificates.identify(shown)
    assert found is not None
    assert found.expires_at is not None
    now = found.expires_at
    with pytest.raises(UnauthenticatedError, match="has expired"):
        certificates.identify(shown)
    assert certificates.identify(Credentials()) is None
    with pytest.raises(UnauthenticatedError, match="cannot be read"):
        certificates.identify(Credentials(certificate=b"no certificate"))
