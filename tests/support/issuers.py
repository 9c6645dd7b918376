"""An identity provider of our own: its keys, its tokens, and the server of its key set."""

import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.server import Connection, whole_server

ISSUER, AUDIENCE = "https://login.example.com/", "mnemon"
_MAKERS: dict[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65_537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
_WRITERS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


class SigningKey:
    """A key of an issuer."""

    def __init__(self, key_id: str, algorithm: str = "EdDSA") -> None:
        self.key_id, self.algorithm = key_id, algorithm
        self.private = _MAKERS[algorithm]()

    @property
    def public(self) -> dict[str, Any]:
        """The key as an entry of a key set."""
        entry = json.loads(_WRITERS[self.algorithm].to_jwk(self.private.public_key()))
        return {**entry, "kid": self.key_id, "alg": self.algorithm, "use": "sig"}

    def sign(self, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token that is valid for an hour, with these changes of its claims; None removes one."""
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": "ada", "aud": AUDIENCE, "iat": now, "exp": now + 3600, "groups": ["staff"]}
        claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        return jwt.encode(claims, self.private, self.algorithm, {"kid": self.key_id, **(headers or {})})


def key_set(*keys: SigningKey) -> dict[str, Any]:
    """The set that an issuer publishes."""
    return {"keys": [key.public for key in keys]}


def write_identities(folder: Path, jwks: str, more: str = "", /, **changes: str) -> Path:
    """An identity file with one issuer, whose lines `changes` replaces; an empty one is left out."""
    lines = {
        "name": '"login"',
        "issuer": f'"{ISSUER}"',
        "audiences": f'["{AUDIENCE}", "another"]',
        "jwks": f'"{jwks}"',
        "leeway_s": "0",
        "refresh_s": "1",
        "tenant": '"acme"',
        "role_claim": '"groups"',
        "roles": '{ staff = "writer", owners = "admin", guests = "reader" }',
        **changes,
    }
    path = folder / "identities.toml"
    table = "\n".join(f"{name} = {value}" for name, value in lines.items() if value)
    path.write_text(f"[[issuer]]\n{table}\n{more}", encoding="utf-8")
    return path


def publish(folder: Path, *keys: SigningKey) -> None:
    """Writes the key set of the issuer of `trusting_server`."""
    (folder / "jwks.json").write_text(json.dumps(key_set(*keys)), encoding="utf-8")


@asynccontextmanager
async def trusting_server(
    folder: Path,
    *keys: SigningKey,
    authentication: tuple[str, ...] = ("jwt",),
    settings: Mapping[str, Any] = MappingProxyType({}),
    **changes: str,
) -> AsyncIterator[Connection]:
    """A server that trusts these keys, from a file."""
    publish(folder, *keys)
    identities = write_identities(folder, "jwks.json", **changes)
    async with whole_server(
        folder / "data", authentication=authentication, identity_file=identities, **settings
    ) as connection:
        yield connection


class KeyServer:
    """Serves a key set over HTTP, with TLS if it has a certificate and its key; counts how often it was asked."""

    def __init__(self, *keys: SigningKey, certificate: tuple[Path, Path] | None = None) -> None:
        self._certificate = certificate
        self.body = json.dumps(key_set(*keys)).encode()
        self.status = 200
        self.requests = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def publish(self, *keys: SigningKey) -> None:
        """Serves these keys from now on."""
        self.body = json.dumps(key_set(*keys)).encode()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Where the set is."""
        return f"http://{self.address}/jwks.json"

    def start(self) -> None:
        """Begins to answer, always on the same port."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                outer.may_answer.wait()
                body = outer.body
                self.send_response(outer.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Writes nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Goes away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def key_server(*keys: SigningKey, certificate: tuple[Path, Path] | None = None) -> Iterator[KeyServer]:
    """A server with these keys, until the block is left."""
    server = KeyServer(*keys, certificate=certificate)
    server.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.stop()
