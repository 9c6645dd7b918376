"""Access to an event's fields by name, for filters."""

from typing import cast

from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.events import FILTER_FIELDS, Event
from mnemon_server.domain.filters import METADATA_PREFIX, FieldReader
from mnemon_server.domain.records import MetadataValue


def field_reader(event: Event) -> FieldReader:
    """Returns a function that reads fields of the event by the names that filters use; unknown fields are None."""

    def read(name: str) -> MetadataValue | None:
        if name.startswith(METADATA_PREFIX):
            return event.metadata.get(name.removeprefix(METADATA_PREFIX))
        if name not in FILTER_FIELDS.types:
            return None
        owner = event.scope if name in SCOPE_FIELDS else event
        return cast("MetadataValue | None", getattr(owner, name))

    return read
