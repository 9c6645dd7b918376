"""Client certificates, and the callers whom they name."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from cryptography import x509

from mnemon_server.domain.access import Credentials, Principal
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import UnauthenticatedError
from mnemon_server.services.background.listeners import Listeners


class Certificates:
    """Knows callers by the names in their certificates, which TLS has verified. Belongs to one event loop."""

    wanted = "connect with a client certificate that the server knows"

    def __init__(self, *, clock: Clock = system_clock) -> None:
        """Knows nobody yet."""
        self._clock = clock
        self._callers: Mapping[str, Principal] = {}
        self.listeners = Listeners()
        """Called once other callers are known."""

    def trust(self, callers: Mapping[str, Principal]) -> None:
        """Knows these callers, by names such as "uri:spiffe://acme/assistant", and no others."""
        self._callers = callers
        self.listeners.tell()

    def identify(self, shown: Credentials) -> Principal | None:
        """The caller whom the certificate names; None without one.

        Raises:
            UnauthenticatedError: the certificate names no caller, or several, or has expired.
        """
        if not shown.certificate:
            return None
        names, expires_at = _read(shown.certificate)
        found = {name: self._callers[name] for name in names if name in self._callers}
        if len(found) != 1:
            raise UnauthenticatedError(
                f"the certificate names {len(found)} callers that the server knows; it must name one"
            )
        if self._clock() >= expires_at:
            raise UnauthenticatedError("the certificate has expired")
        (caller,) = found.values()
        return replace(caller, expires_at=expires_at)


@lru_cache(maxsize=1024)
def _read(pem: bytes) -> tuple[frozenset[str], datetime]:
    """The names in a certificate, and when it expires."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        return frozenset(_names(certificate)), certificate.not_valid_after_utc
    except ValueError as error:
        raise UnauthenticatedError("the certificate cannot be read") from error


def _names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for kind, values in (
        ("uri", names.get_values_for_type(x509.UniformResourceIdentifier)),
        ("dns", names.get_values_for_type(x509.DNSName)),
        ("email", names.get_values_for_type(x509.RFC822Name)),
    ):
        yield from (f"{kind}:{value}" for value in values)
