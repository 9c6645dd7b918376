"""TLS credentials that follow the certificate files, so that a renewed certificate needs no restart."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import structlog

from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError

_log = structlog.get_logger()


def server_credentials(settings: Settings) -> Callable[[], grpc.ServerCredentials | None]:
    """A function that makes the credentials of the settings, one for each server of the runtime; None is plain.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return lambda: None
    files = _Files(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    return lambda: grpc.dynamic_ssl_server_credentials(
        files.configuration,
        files.follow(),  # type: ignore[arg-type]
        require_client_authentication=settings.tls_client_ca is not None,
    )


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """The same for HTTP.

    Raises:
        ConfigurationError: a file cannot be read, or does not hold what it should.
    """
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    try:
        return _Contexts(settings.tls_certificate, settings.tls_key, settings.tls_client_ca).first
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the files of the TLS settings cannot be used: {error}") from error


class _Contexts:
    """The contexts of TLS, made anew once the files have changed."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._renewed = _Files(certificate, key, client_ca).follow()
        self.first = self._newest = self._made()
        # Called at the start of every handshake, whether or not the client names a host.
        self.first.sni_callback = self._renew

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._certificate, self._key)
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._client_ca)
        return context

    def _renew(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._renewed() is not None:
            try:
                self._newest = self._made()
            except (OSError, ssl.SSLError) as error:
                _log.error("the TLS files cannot be used; the last ones are", error=str(error))
        connection.context = self._newest


class _Files:
    """The certificate files, read again for a handshake once they have changed."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._paths = tuple(path for path in (certificate, key, client_ca) if path is not None)
        try:
            self._stamp = self._stamps()
            self.configuration = self._read()
        except OSError as error:
            raise ConfigurationError(f"a file of the TLS settings cannot be read: {error}") from error

    def follow(self) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
        """A function that returns the configuration once it has changed, else None. It never raises."""
        known = self.configuration

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal known
            self._renew()
            before, known = known, self.configuration
            return None if known is before else known

        return renewed

    def _renew(self) -> None:
        """Reads the files again if they have changed. An error would break the handshake, and is logged instead."""
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self.configuration, self._stamp = self._read(), stamp
                _log.info("the TLS certificate was renewed")
        except OSError as error:
            _log.error("the TLS files cannot be read; the last ones are used", error=str(error))

    def _stamps(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self._paths]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, *client_ca = (path.read_bytes() for path in self._paths)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca[0] if client_ca else None)
