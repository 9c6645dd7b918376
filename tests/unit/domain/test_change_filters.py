"""Which changes a filter selects."""

from dataclasses import fields, replace

import pytest
from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.origins import Provenance
from mnemon_server.domain.records import Scope

SCOPE = Scope("ada", "home", "host", "agent", "project")
CHANGE = Change(7, 7, EPOCH, ChangeType.MEMORY_CREATED, "one", 1, SCOPE)


@pytest.mark.parametrize("name", [field.name for field in fields(Scope)])
def test_each_field_of_the_scope_that_is_set_must_be_equal(name: str) -> None:
    assert ChangeFilter(scope=SCOPE).matches(CHANGE)
    assert ChangeFilter(scope=replace(Scope(), **{name: getattr(SCOPE, name)})).matches(CHANGE)
    assert not ChangeFilter(scope=replace(SCOPE, **{name: "another"})).matches(CHANGE)


@pytest.mark.parametrize(
    "where",
    [
        ChangeFilter(types=frozenset({ChangeType.MEMORY_PURGED})),
        ChangeFilter(record_ids=frozenset({"two"})),
        ChangeFilter(scope=Scope(user="bob")),
        ChangeFilter(conversation="c"),
        ChangeFilter(bounds=Bounds.of(["bob"], [])),
    ],
)
def test_a_filter_that_leaves_out_a_change_does_not_select_everything(where: ChangeFilter) -> None:
    assert where
    assert not where.matches(CHANGE)
    assert not ChangeFilter()
    assert ChangeFilter().matches(CHANGE)


@pytest.mark.parametrize("own", [UNBOUNDED, Bounds.of(["ada"], [])])
def test_changes_of_records_in_quarantine_are_left_out(own: Bounds) -> None:
    page = replace(SCOPE, origin="web", origin_name="a.example")
    where = ChangeFilter(bounds=replace(own, hidden=(Provenance("web", "a.example"),)))
    assert where
    assert where.matches(CHANGE)
    assert where.matches(CHANGE._replace(scope=replace(page, origin_name="b.example")))
    assert not where.matches(CHANGE._replace(scope=page))
    rule = CHANGE._replace(type=ChangeType.RULE_UPDATED, scope=Scope())
    assert where.matches(rule) == (own == UNBOUNDED)
