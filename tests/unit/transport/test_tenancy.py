"""The tenant of a call comes from its credential; only operators name one."""

from collections.abc import Iterator
from typing import Any

import pytest
from mnemon_server.domain.access import Principal, Role
from mnemon_server.domain.errors import InvalidArgumentError, NotServingError, PermissionDeniedError
from mnemon_server.services.reading.answers import VECTORS_WEIGHT, WEIGHT, AnswerMemory
from mnemon_server.services.vaults import VaultPool
from mnemon_server.transport.interceptors.base import Call, current_call
from mnemon_server.transport.tenancy import TenantServicer, named_tenant, tenant_of

RECORD_BYTES = 100_000


class Context:
    """What a handler sees of a call."""

    def add_done_callback(self, callback: Any, /) -> None:
        """The call does not end."""


@pytest.fixture
def call() -> Iterator[Call]:
    made = Call("a request", principal=Principal("acme", "key:1", Role.ADMIN))
    token = current_call.set(made)
    yield made
    current_call.reset(token)


def test_a_caller_names_no_tenant_but_its_own(call: Call) -> None:
    context = Context()
    assert tenant_of(context) == named_tenant(context, "") == named_tenant(context, "acme") == "acme"
    for other in ("globex", "No tenant!"):
        with pytest.raises(PermissionDeniedError, match="only operators name a tenant"):
            named_tenant(context, other)


def test_an_operator_names_any_tenant_that_there_can_be_or_none(call: Call) -> None:
    call.principal = Principal("", "key:2", Role.OPERATOR)
    context = Context()
    assert [named_tenant(context, name) for name in ("", "acme")] == ["", "acme"]
    with pytest.raises(InvalidArgumentError, match="lower-case"):
        named_tenant(context, "No tenant!")


def test_before_the_vaults_are_there_nothing_is_served(call: Call) -> None:
    servicer, context = TenantServicer(), Context()
    for serve in (
        lambda: servicer.room(context),
        lambda: servicer.vault(context),
        lambda: servicer.vault_of("acme"),
    ):
        with pytest.raises(NotServingError, match="is starting"):
            serve()


@pytest.mark.parametrize("weight", [WEIGHT, VECTORS_WEIGHT])
def test_an_answer_holds_memory_for_its_records(weight: int, call: Call) -> None:
    memory, servicer, context = AnswerMemory(1 << 30), TenantServicer(), Context()

    async def open_nothing(tenant: str) -> Any:
        raise AssertionError(tenant)

    pool: VaultPool = VaultPool(open_nothing, open_max=1, idle_s=None)
    servicer.attach(pool, memory)
    assert servicer.vault(context)
    assert servicer.vault_of("acme")
    room = servicer.room(context, vectors=weight is VECTORS_WEIGHT)
    assert room.fits("one", RECORD_BYTES)
    assert call.room is room
    assert memory.used == weight * RECORD_BYTES
