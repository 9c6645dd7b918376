"""Many names of facts at once."""

from mnemon_server.domain.namespaces import Namespace
from mnemon_server.services.facts.store import by_record_id

from tests.support.turns import Turns


async def test_other_calls_are_served_while_many_names_are_looked_up() -> None:
    longest = Namespace(tuple(f"label {number:<50}" for number in range(16)))
    async with Turns() as turns:
        names = await by_record_id([(longest, str(number)) for number in range(1_000)])
    assert len(names) == 1_000
    assert turns.count > 1
