"""Callers known by their client certificates, and those of the Unix socket of the server."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from grpc import aio
from mnemon.v1 import access_pb2 as pb
from mnemon.v1 import access_pb2_grpc, changes_pb2, changes_pb2_grpc, tenant_pb2, tenant_pb2_grpc
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.transport.options import CONNECTION_AGE_S, server_options

from tests.support.access import bearer, make_key
from tests.support.certificates import Authority
from tests.support.server import Connection, eventually, stream_end, whole_server

ROBOT, ADA, SHOP = "uri:spiffe://acme/robot", "email:ada@acme.test", "dns:shop.acme.test"
TABLE = """
[[certificate]]
name = "{name}"
tenant = "{tenant}"
role = "{role}"
"""


def write_table(folder: Path, **roles: str) -> Path:
    """An identity file with these three callers, but those without a role."""
    names = {"robot": ROBOT, "ada": ADA, "shop": SHOP}
    given = {"robot": "writer", "ada": "admin", "shop": "reader", **roles}
    tables = [TABLE.format(name=names[each], tenant="acme", role=role) for each, role in given.items() if role]
    path = folder / "identities.toml"
    path.write_text("".join(tables), encoding="utf-8")
    return path


@asynccontextmanager
async def tls_server(folder: Path, authority: Authority, **settings: Any) -> AsyncIterator[Connection]:
    """A server that asks for certificates of the authority."""
    pem, key = authority.issue("server", "dns:localhost", "ip:127.0.0.1")
    chosen = {"authentication": ("mtls",), "identity_file": write_table(folder), **settings}
    tls = {"tls_certificate": pem, "tls_key": key, "tls_client_ca": authority.path}
    async with whole_server(folder / "data", **tls, **chosen) as connection:
        yield connection


@asynccontextmanager
async def channel_of(
    connection: Connection, authority: Authority, certificate: tuple[Path, Path]
) -> AsyncIterator[aio.Channel]:
    """A channel of a client with a certificate."""
    pem, key = (path.read_bytes() for path in certificate)
    credentials = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, pem)
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with aio.secure_channel(str(connection.server.address), credentials, options) as channel:
        yield channel


async def who(channel: aio.Channel, secret: str = "") -> Any:
    """The answer to WhoAmI, or the error."""
    stub: Any = access_pb2_grpc.AccessServiceStub(channel)
    try:
        return await stub.WhoAmI(pb.WhoAmIRequest(), metadata=bearer(secret) if secret else None)
    except aio.AioRpcError as error:
        return error


async def test_a_certificate_says_who_calls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    callers = {
        ROBOT: ("writer", authority.issue("robot", ROBOT, "dns:unknown.test")),
        ADA: ("admin", authority.issue("ada", ADA)),
        SHOP: ("reader", authority.issue("shop", SHOP, ends_in=timedelta(minutes=10))),
    }
    async with tls_server(tmp_path, authority) as connection:
        for name, (role, certificate) in callers.items():
            async with channel_of(connection, authority, certificate) as channel:
                answer = await who(channel)
                assert (answer.tenant, answer.subject) == ("acme", f"mtls:{name}")
                assert pb.Role.Name(answer.role) == f"ROLE_{role.upper()}"
                assert answer.HasField("expire_time")


async def test_an_operator_by_certificate_manages_the_tenants_of_a_server_without_keys(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with tls_server(tmp_path, authority) as connection:
        table = write_table(tmp_path, robot="")
        operator = f'[[certificate]]\nname = "{ROBOT}"\nrole = "operator"\n'
        table.write_text(table.read_text(encoding="utf-8") + operator, encoding="utf-8")
        async with channel_of(connection, authority, authority.issue("robot", ROBOT)) as channel:

            async def is_operator() -> bool:
                return bool((await who(channel)).role == pb.ROLE_OPERATOR)

            await eventually(is_operator)
            tenants: Any = tenant_pb2_grpc.TenantServiceStub(channel)
            await tenants.CreateTenant(tenant_pb2.CreateTenantRequest(tenant="globex"))
            listed = (await tenants.ListTenants(tenant_pb2.ListTenantsRequest())).tenants
            # The file names acme, so it is one.
            assert [each.tenant for each in listed] == ["default", "acme", "globex"]


async def test_certificates_that_name_nobody_or_two_callers_or_of_another_authority_are_refused(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with tls_server(tmp_path, authority) as connection:
        for certificate in (
            authority.issue("nobody"),
            authority.issue("stranger", "uri:spiffe://acme/stranger"),
            authority.issue("both", ROBOT, ADA),
            # The same text under another kind of name.
            authority.issue("disguised", "uri:shop.acme.test", "dns:ada.acme.test"),
        ):
            async with channel_of(connection, authority, certificate) as channel:
                assert (await who(channel)).code() is grpc.StatusCode.UNAUTHENTICATED, certificate
        async with channel_of(connection, authority, other.issue("robot", ROBOT)) as channel:
            assert (await who(channel)).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_ends_when_its_caller_is_no_longer_in_the_table(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    robot, ada = authority.issue("robot", ROBOT), authority.issue("ada", ADA)
    async with (
        tls_server(tmp_path, authority) as connection,
        channel_of(connection, authority, robot) as of_robot,
        channel_of(connection, authority, ada) as of_ada,
    ):
        watches = [watch(channel) for channel in (of_robot, of_ada)]
        for each in watches:
            assert (await each.read()).HasField("started")
        write_table(tmp_path, robot="")
        _, error = await stream_end(watches[0])
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await who(of_ada)).tenant == "acme"
        assert not watches[1].done()
        watches[1].cancel()


async def test_a_certificate_binds_its_caller_to_the_users_in_the_table(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    robot, ada = authority.issue("robot", ROBOT), authority.issue("ada", ADA)
    async with tls_server(tmp_path, authority) as connection:
        table = TABLE.format(name=ROBOT, tenant="acme", role="writer") + 'users = ["bob"]'
        (tmp_path / "identities.toml").write_text(table + TABLE.format(name=ADA, tenant="acme", role="admin"))
        address, ca = str(connection.server.address), authority.path
        async with mnemon.AsyncClient(address, ca_file=ca, certificate_file=ada[0], key_file=ada[1]) as client:
            await client.documents.put("note", "Ada sits by the window.", scope=mnemon.Scope(user="ada"))
        async with mnemon.AsyncClient(address, ca_file=ca, certificate_file=robot[0], key_file=robot[1]) as client:

            async def is_bound() -> bool:
                return list((await client.who_am_i()).users) == ["bob"]

            await eventually(is_bound)
            with pytest.raises(mnemon.NotFoundError):
                await client.documents.get("note")


def watch(channel: aio.Channel) -> Any:
    stub: Any = changes_pb2_grpc.ChangeServiceStub(channel)
    return stub.WatchChanges(changes_pb2.WatchChangesRequest())


async def test_a_header_says_more_than_the_certificate_beside_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    secret = make_key(tmp_path / "data", "reader", tenant="globex")
    robot = authority.issue("robot", ROBOT)
    both = ("api_key", "mtls")
    async with (
        tls_server(tmp_path, authority, authentication=both) as connection,
        channel_of(connection, authority, robot) as channel,
    ):
        assert (await who(channel)).tenant == "acme"
        assert (await who(channel, secret)).tenant == "globex"
        assert (await who(channel, secret[:-1])).code() is grpc.StatusCode.UNAUTHENTICATED


def test_connections_with_certificates_end_after_a_while_also_on_loopback() -> None:
    age = ("grpc.max_connection_age_ms", CONNECTION_AGE_S * 1000)
    assert age in server_options(Settings(authentication=("mtls",)))
    assert age not in server_options(Settings(authentication=("jwt",)))


async def test_the_socket_belongs_to_the_user_of_the_server_before_anybody_can_connect(tmp_path: Path) -> None:
    allow(tmp_path, 0o700)
    before = os.umask(0)
    try:
        async with whole_server(
            tmp_path / "data", listen=f"unix:{tmp_path}/socket", authentication=("unix",)
        ) as connection:
            # Nothing changes the mode later: it is that of the moment when the socket appeared.
            assert (tmp_path / "socket").stat().st_mode & 0o077 == 0
            answer = await who(connection.channel)
            assert (answer.tenant, answer.subject) == ("default", f"unix:{os.getuid()}")
            assert (await who(connection.channel, "mn_x")).code() is grpc.StatusCode.UNAUTHENTICATED
            async with mnemon.AsyncClient(f"unix:{tmp_path}/socket") as client:
                assert (await client.who_am_i()).role is mnemon.Role.ADMIN
    finally:
        os.umask(before)


async def test_a_socket_in_a_folder_that_others_may_enter_is_no_identity(tmp_path: Path) -> None:
    for mode in (0o755, 0o710, 0o701):
        allow(tmp_path, mode)
        with pytest.raises(ConfigurationError, match="chmod 700"):
            async with whole_server(tmp_path / "data", listen=f"unix:{tmp_path}/socket", authentication=("unix",)):
                pass
    allow(tmp_path, 0o700)


def allow(folder: Path, mode: int) -> None:
    folder.chmod(mode)
