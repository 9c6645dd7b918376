"""A certificate authority of our own."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_MAKERS = {"dns": x509.DNSName, "uri": x509.UniformResourceIdentifier, "email": x509.RFC822Name}


class Authority:
    """Issues certificates, each as `<name>.pem` and `<name>.key` in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._subject, self._key, datetime.now(UTC) + timedelta(days=1))
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *names: str, ends_in: timedelta = timedelta(days=1)) -> tuple[Path, Path]:
        """A certificate with alternative names such as "dns:robot.test", and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        general: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(value)) if kind == "ip" else _MAKERS[kind](value)
            for kind, _, value in (each.partition(":") for each in names)
        ]
        builder = self._builder(subject, key, datetime.now(UTC) + ends_in)
        if general:
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pem, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        pem.write_bytes(certificate.public_bytes(Encoding.PEM))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return pem, private

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, ends_at: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(days=1))
            .not_valid_after(ends_at)
        )
