"""The fields of an event by their names: what filters read."""

from typing import cast

from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.episodic import FILTER_FIELDS, EpisodicEvent
from mnemon_server.domain.filters import METADATA_PREFIX, FieldReader
from mnemon_server.domain.records import MetadataValue


def field_reader(event: EpisodicEvent) -> FieldReader:
    """Reads the fields of an event as filters name them; what has no such name is None."""

    def read(name: str) -> MetadataValue | None:
        if name.startswith(METADATA_PREFIX):
            return event.metadata.get(name.removeprefix(METADATA_PREFIX))
        if name not in FILTER_FIELDS:
            return None
        owner = event.scope if name in SCOPE_FIELDS else event
        return cast("MetadataValue | None", getattr(owner, name))

    return read
