"""Whether a call passes: by its credential, its role and its bounds, before its request is read."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import grpc
import pytest
from mnemon_server.domain.access import Credentials, Permission, Principal, Role
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.errors import PermissionDeniedError, UnauthenticatedError
from mnemon_server.services.access.identities import Identities
from mnemon_server.services.access.unknown import UnknownError
from mnemon_server.services.background.listeners import Listeners
from mnemon_server.transport.interceptors.access import Access
from mnemon_server.transport.interceptors.base import Answer, Call, Method, call_of, current_call

READ, WRITE, RULE, WATCH = "/tea.Tea/Read", "/tea.Tea/Write", "/tea.Tea/Rule", "/tea.Tea/Watch"
PERMISSIONS = {
    READ: Permission(Role.READER),
    WATCH: Permission(Role.READER),
    WRITE: Permission(Role.WRITER),
    RULE: Permission(Role.READER, whole_tenant=True),
}
ADA = Principal("acme", "key:ada", Role.READER)
CERTIFICATE = b"a certificate"


class Callers:
    """Finds the caller for the presented credentials; missing ones are looked up."""

    wanted = "show something"

    def __init__(self) -> None:
        self.listeners = Listeners()
        self.known: dict[Credentials, Principal] = {}
        self.found: dict[Credentials, Principal] = {}

    def identify(self, shown: Credentials) -> Principal | None:
        async def look() -> None:
            self.known.update(self.found)

        if shown not in self.known:
            raise UnknownError(UnauthenticatedError("no caller matches"), look)
        return self.known[shown]


class Exchange:
    """What the transport knows about a call."""

    def __init__(self, certificate: bytes = CERTIFICATE) -> None:
        self._certificate = certificate

    def auth_context(self) -> Mapping[str, Any]:
        return {"x509_pem_cert": [self._certificate]}

    def cancelled(self) -> bool:
        return False


@pytest.fixture
def call() -> Iterator[Call]:
    made = Call("a request", authorization="Bearer a secret")
    token = current_call.set(made)
    yield made
    current_call.reset(token)


def method(path: str, *, streams: bool = False) -> Method:
    make: Any = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
    return Method(path, make(None))


async def answer(request: Any, context: Any) -> str:
    return "answered"


async def answered(access: Access, checked: Method, inner: Answer = answer) -> Any:
    """What the call in progress is answered, if it passes."""
    admit = access.of(checked)
    assert admit is not None
    if (examined := admit(current_call.get(), Exchange())) is not None:
        await examined
    return await access.watched(checked, inner)(None, Exchange())


async def test_without_identities_and_for_health_calls_pass_as_they_are() -> None:
    open_access, access = Access(None, PERMISSIONS), Access(Identities([Callers()]), PERMISSIONS)
    for path, each in ((READ, open_access), ("/grpc.health.v1.Health/Watch", access)):
        assert each.of(method(path)) is None
        assert each.watched(method(path, streams=True), answer) is answer
    assert access.of(method(READ)) is not None
    assert access.watched(method(WATCH, streams=True), answer) is not answer


async def test_a_caller_needs_a_credential_its_role_and_no_bounds_where_the_tenant_is_meant(call: Call) -> None:
    callers = Callers()

    async def checked(path: str) -> Any:
        # Each time as if a while had passed.
        return await answered(Access(Identities([callers]), PERMISSIONS), method(path))

    bound = replace(ADA, bounds=replace(Bounds.of(["ada"], []), holder=ADA.subject))
    refusals = {
        (ADA, READ): "",
        (ADA, WRITE): "this needs the role writer; your credential has reader",
        (ADA, RULE): "",
        (replace(ADA, role=Role.WRITER), WRITE): "",
        (bound, READ): "",
        (bound, RULE): "this concerns the whole tenant; your credential is bound",
        (ADA, "/tea.Tea/Unknown"): "",
    }
    for (principal, path), refusal in refusals.items():
        callers.known = {call.credentials: principal}
        if not refusal:
            assert await checked(path) == "answered"
            assert (call.principal, call.is_known) == (principal, True)
        else:
            with pytest.raises(PermissionDeniedError, match=refusal):
                await checked(path)
    callers.known = {}
    with pytest.raises(UnauthenticatedError, match="no caller matches"):
        await checked(READ)
    callers.found = {call.credentials: ADA}
    assert await checked(READ) == "answered"


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("", Credentials(certificate=CERTIFICATE)),
        ("Basic a secret", Credentials(certificate=CERTIFICATE)),
        ("Bearer a secret", Credentials("a secret")),
    ],
)
async def test_a_certificate_counts_unless_a_header_says_who_calls(header: str, shown: Credentials, call: Call) -> None:
    callers = Callers()
    callers.known = {shown: ADA}
    call.authorization = header
    access = Access(Identities([callers], certificates=True), PERMISSIONS)
    assert await answered(access, method(READ)) == "answered"
    assert call.credentials == shown


async def test_certificates_tell_callers_apart_who_send_the_same_header() -> None:
    callers, eve = Callers(), replace(ADA, subject="certificate:eve")
    callers.known = {Credentials(certificate=CERTIFICATE): ADA, Credentials(certificate=b"another"): eve}
    admit = Access(Identities([callers], certificates=True), PERMISSIONS).of(method(READ))
    assert admit is not None
    found = []
    for certificate in (CERTIFICATE, b"another", CERTIFICATE):
        call = Call("a request", authorization="Basic the same")
        if (examined := admit(call, Exchange(certificate))) is not None:
            await examined
        found.append(call.principal)
    assert found == [ADA, eve, ADA]


async def test_a_cached_caller_is_not_authenticated_again_but_needs_the_role_in_every_call(call: Call) -> None:
    callers = Callers()
    callers.known = {call.credentials: ADA}
    identities = Identities([callers])
    access = Access(identities, PERMISSIONS)
    admit_read, admit_write = access.of(method(READ)), access.of(method(WRITE))
    assert admit_read is not None
    assert admit_write is not None
    assert await answered(access, method(READ)) == "answered"
    second = Call("another request", authorization=call.authorization)
    assert admit_read(second, Exchange()) is None
    assert (second.principal, second.is_known) == (ADA, True)
    with pytest.raises(PermissionDeniedError, match="this needs the role writer"):
        admit_write(Call("a third", authorization=call.authorization), Exchange())
    callers.known = {}
    callers.listeners.tell()
    examined = admit_read(Call("a fourth", authorization=call.authorization), Exchange())
    assert examined is not None
    with pytest.raises(UnauthenticatedError, match="no caller matches"):
        await examined


async def test_a_stream_ends_with_its_credential_and_a_single_call_is_answered(call: Call) -> None:
    callers = Callers()
    callers.known = {call.credentials: ADA}
    identities = Identities([callers])
    access = Access(identities, PERMISSIONS)
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def wait(request: Any, context: Any) -> str:
        has_begun.set()
        await may_end.wait()
        return "answered"

    tasks = []
    for each in (method(WATCH, streams=True), method(READ)):
        has_begun.clear()
        tasks.append(asyncio.ensure_future(answered(access, each, wait)))
        await has_begun.wait()
    stream, single = tasks
    for listener in identities.listeners:
        listener()
    await asyncio.sleep(0)
    assert not stream.done()
    callers.known = {call.credentials: replace(ADA, role=Role.WRITER)}
    for listener in identities.listeners:
        listener()
    with pytest.raises(UnauthenticatedError, match="has expired or was revoked"):
        await stream
    may_end.set()
    assert await single == "answered"


async def test_a_stream_that_its_client_cancels_is_cancelled(call: Call) -> None:
    callers = Callers()
    callers.known = {call.credentials: ADA}
    access = Access(Identities([callers]), PERMISSIONS)
    task = asyncio.ensure_future(answered(access, method(WATCH, streams=True), answer_never))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def answer_never(request: Any, context: Any) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.mark.parametrize("second", ["Bearer b", "bearer a", "Bearer mn_b"])
def test_two_credentials_in_the_headers_are_not_valid(second: str) -> None:
    headers = [("authorization", "Bearer a"), ("x-other", "c"), ("authorization", second)]
    for order in (headers, headers[::-1]):
        assert call_of(order).credentials not in (Credentials("a"), Credentials(second.split()[1]), Credentials())
    assert call_of(headers[:2]).credentials == Credentials("a")
