"""Many names of facts at once."""

from collections.abc import Iterable

from mnemon_server.domain.facts import record_id
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.services.shared.pause import Pause

Name = tuple[Namespace, str]
"""A namespace, and a key in it."""


async def by_record_id(names: Iterable[Name]) -> dict[str, Name]:
    """Each of the names once, in their order, under the id of its record; yields to other calls."""
    name_of, pause = {}, Pause()
    for name in dict.fromkeys(names):
        name_of[record_id(*name)] = name
        await pause.where_due()
    return name_of
