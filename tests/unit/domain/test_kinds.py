"""The table of kinds covers every collection, and every change that is about one record."""

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.domain.kinds import COLLECTION_OF, KINDS, REMOVALS, RecordKind


def test_every_kind_has_its_traits_and_every_collection_its_kind() -> None:
    assert set(KINDS) == set(RecordKind)
    assert set(COLLECTION_OF.values()) == set(COLLECTIONS)
    assert len(COLLECTION_OF) == len(COLLECTIONS)


def test_no_change_shows_or_removes_records_of_two_kinds() -> None:
    for changes in ([traits.shown for traits in KINDS.values()], [{each} for each in REMOVALS]):
        assert sum(map(len, changes)) == len(frozenset[ChangeType]().union(*changes))
    assert len(REMOVALS) == sum(traits.removed is not None for traits in KINDS.values())


def test_a_collection_has_the_name_of_its_kind() -> None:
    assert all(collection.name == kind for kind, collection in COLLECTION_OF.items())
