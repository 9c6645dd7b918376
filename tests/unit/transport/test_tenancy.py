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


@pytest.fixture
def call() -> Iterator[Call]:
    made = Call("a request", principal=Principal("acme", "key:1", Role.ADMIN))
    token = current_call.set(made)
    yield made
    current_call.reset(token)


def test_a_caller_names_no_tenant_but_its_own(call: Call) -> None:
    assert tenant_of() == named_tenant("") == named_tenant("acme") == "acme"
    for other in ("globex", "No tenant!"):
        with pytest.raises(PermissionDeniedError, match="only operators name a tenant"):
            named_tenant(other)


def test_an_operator_names_any_tenant_that_there_can_be_or_none(call: Call) -> None:
    call.principal = Principal("", "key:2", Role.OPERATOR)
    assert [named_tenant(name) for name in ("", "acme")] == ["", "acme"]
    with pytest.raises(InvalidArgumentError, match="lower-case"):
        named_tenant("No tenant!")


def test_before_the_vaults_are_there_nothing_is_served(call: Call) -> None:
    servicer = TenantServicer()
    for serve in (
        servicer.room,
        servicer.vault,
        lambda: servicer.vault_of("acme"),
    ):
        with pytest.raises(NotServingError, match="is starting"):
            serve()


@pytest.mark.parametrize("weight", [WEIGHT, VECTORS_WEIGHT])
def test_an_answer_holds_memory_for_its_records(weight: int, call: Call) -> None:
    memory, servicer = AnswerMemory(1 << 30), TenantServicer()

    async def open_nothing(tenant: str) -> Any:
        raise AssertionError(tenant)

    pool: VaultPool = VaultPool(open_nothing, open_max=1, idle_s=None)
    servicer.attach(pool, memory)
    assert servicer.vault()
    assert servicer.vault_of("acme")
    room = servicer.room(vectors=weight is VECTORS_WEIGHT)
    assert room.fits("one", RECORD_BYTES)
    assert call.room is room
    assert memory.used == weight * RECORD_BYTES
