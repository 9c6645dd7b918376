"""TLS credentials that follow the certificate files, so that a renewed certificate needs no restart."""

from pathlib import Path

import grpc
import structlog

from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError

_log = structlog.get_logger()


def server_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """The credentials that the settings ask for; None for plain connections.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    files = _Files(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    return grpc.dynamic_ssl_server_credentials(
        files.configuration,
        files.renewed,  # type: ignore[arg-type]
        require_client_authentication=settings.tls_client_ca is not None,
    )


class _Files:
    """The certificate files, read again for a handshake once they have changed."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._paths = tuple(path for path in (certificate, key, client_ca) if path is not None)
        try:
            self._stamp = self._stamps()
            self.configuration = self._read()
        except OSError as error:
            raise ConfigurationError(f"a file of the TLS settings cannot be read: {error}") from error

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration; None while it is the old one. Never raises: that would break the handshake."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return None
            self.configuration, self._stamp = self._read(), stamp
        except OSError as error:
            _log.error("the TLS files cannot be read; the last ones are used", error=str(error))
            return None
        _log.info("the TLS certificate was renewed")
        return self.configuration

    def _stamps(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self._paths]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, *client_ca = (path.read_bytes() for path in self._paths)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca[0] if client_ca else None)
