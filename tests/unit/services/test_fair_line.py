"""The order in which those who wait have their turns."""

from mnemon_server.services.limits.fair_line import FairLine


def order(line: FairLine[str]) -> list[str]:
    """Everything that waits, in its order."""
    found = []
    while (item := line.pop()) is not None:
        found.append(item)
    return found


def test_tenants_have_turns_and_then_the_callers_of_a_tenant() -> None:
    line = FairLine[str]()
    for number in range(4):
        line.add(f"greedy-{number}", "one", "greedy")
    line.add("modest", "one", "modest")
    line.add("other-0", "two", "other")
    line.add("other-1", "two", "other")
    assert order(line) == ["greedy-0", "other-0", "modest", "other-1", "greedy-1", "greedy-2", "greedy-3"]
    assert not line


def test_one_that_may_not_go_holds_up_its_own_and_no_others() -> None:
    line = FairLine[str]()
    line.add("large", "one")
    line.add("small of the same", "one")
    line.add("small", "two")
    assert line.pop(lambda item: item.startswith("small")) == "small"
    assert line.pop(lambda item: item.startswith("small")) is None
    assert order(line) == ["large", "small of the same"]


def test_a_single_holder_may_be_asked_for_and_then_waits_behind_the_others() -> None:
    line = FairLine[str]()
    for holder in ("one", "two"):
        line.add(f"first of {holder}", "group", holder)
        line.add(f"second of {holder}", "group", holder)
    assert line.pop(holder=("group", "one")) == "first of one"
    assert line.pop(holder=("group", "three")) is None
    assert order(line) == ["first of two", "second of one", "second of two"]


def test_what_no_longer_waits_is_left_out() -> None:
    line = FairLine[str]()
    line.add("first", "one", "a")
    line.add("second", "one", "b")
    line.discard("first", "one", "a")
    line.discard("first", "one", "a")
    line.discard("third", "one", "b")
    assert order(line) == ["second"]
