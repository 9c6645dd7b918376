"""Namespaces: how they are listed, and that no operation on one affects another."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from mnemon_server.domain.errors import FactNotFoundError, InvalidArgumentError
from mnemon_server.domain.facts import FactBatch, FactFilter, FactQuery, PutFact, PutMode
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import SearchMode, WriteOutcome
from mnemon_server.services.facts import namespaces as facts_namespaces

from tests.support.colliding_namespaces import COLLIDING
from tests.support.fact_stores import HERE, OpenedFacts, open_facts
from tests.support.memory_stores import fields_of

KEY = "the same key everywhere"


async def listed(facts: OpenedFacts, *, page: int = 1_000, **asked: Sequence[str] | int) -> list[tuple[str, ...]]:
    """All namespaces, page by page."""
    found: list[tuple[str, ...]] = []
    after: tuple[str, ...] = ()
    while True:
        answer = await facts.store.namespaces(after=after, limit=page, **asked)  # type: ignore[arg-type]
        assert len(answer.namespaces) <= page
        found += answer.namespaces
        if answer.last is None:
            return found
        assert answer.last == answer.namespaces[-1]
        after = answer.last


async def fill(facts: OpenedFacts) -> None:
    """Stores a fact under the same key in each of the fifty. Their texts are distinct words of the same length."""
    puts = [
        PutFact(namespace=Namespace(labels), key=KEY, value={"content": word(number)}, ttl=timedelta(hours=1))
        for number, labels in enumerate(COLLIDING)
    ]
    results = await facts.store.put_many(puts)
    assert {getattr(result, "outcome", None) for result in results} == {WriteOutcome.CREATED}


def word(number: int) -> str:
    return f"secret{number:02}"


async def contents(facts: OpenedFacts) -> dict[tuple[str, ...], str]:
    """The stored contents by namespace."""
    page = await facts.store.list(FactFilter(namespace=None, subtree=True), limit=1_000)
    return {fact.namespace: fact.value["content"] for fact in page.facts}


UNTOUCHED = {labels: word(number) for number, labels in enumerate(COLLIDING)}
EVERY_WORD = " ".join(UNTOUCHED.values())


async def test_reads_stay_within_their_namespace(facts: OpenedFacts) -> None:
    await fill(facts)
    for number, labels in enumerate(COLLIDING):
        namespace = Namespace(labels)
        assert (await facts.store.get(namespace, KEY)).value == {"content": word(number)}
        assert await facts.keys(namespace) == [KEY]
        meant = FactFilter(namespace=namespace)
        assert (await facts.store.delete_many(meant, dry_run=True)).deleted_count == 1
        for query in (
            FactQuery(filter=meant, limit=99),
            FactQuery(filter=meant, text=EVERY_WORD, limit=99),
            FactQuery(filter=meant, text=word(number), mode=SearchMode.VECTOR, limit=99),
        ):
            found = (await facts.store.search(query)).matches
            assert [match.fact.namespace for match in found] == [labels]
        other = FactQuery(filter=meant, text=word((number + 1) % len(COLLIDING)), mode=SearchMode.KEYWORD)
        assert (await facts.store.search(other)).matches == ()


async def test_many_facts_are_read_each_from_its_own_namespace(facts: OpenedFacts) -> None:
    await fill(facts)
    names = [(Namespace(labels), KEY) for labels in reversed(COLLIDING)]
    found = (await facts.store.get_many(names)).facts
    assert [(fact.namespace, fact.value["content"]) for fact in found] == list(reversed(UNTOUCHED.items()))


async def test_a_subtree_holds_only_namespaces_that_begin_with_its_labels(facts: OpenedFacts) -> None:
    await fill(facts)
    for labels in COLLIDING:
        meant = FactFilter(namespace=Namespace(labels), subtree=True)
        expected = [other for other in COLLIDING if other[: len(labels)] == labels]
        assert [fact.namespace for fact in (await facts.store.list(meant, limit=99)).facts] == expected
        found = (await facts.store.search(FactQuery(filter=meant, text=EVERY_WORD, limit=99))).matches
        assert {match.fact.namespace for match in found} == set(expected)
        assert (await facts.store.delete_many(meant, dry_run=True)).deleted_count == len(expected)


async def test_the_keys_of_one_namespace_are_unknown_in_all_others(facts: OpenedFacts) -> None:
    """Each namespace has a fact under its own key, and all others request it with every operation."""
    for number, labels in enumerate(COLLIDING):
        await facts.put(f"own {number}", word(number), namespace=labels)
    before = len(facts.changes())
    for number, labels in enumerate(COLLIDING):
        namespace = Namespace(labels)
        foreign = [f"own {other}" for other in range(len(COLLIDING)) if other != number]
        assert await facts.store.get_many([(namespace, key) for key in foreign]) == FactBatch(())
        renewals = await facts.store.renew([(namespace, key) for key in foreign])
        assert {type(result) for result in renewals.results} == {FactNotFoundError}
        for key in foreign[:: 7 + number % 5]:
            update = PutFact(namespace=namespace, key=key, value={"content": "x"}, mode=PutMode.UPDATE)
            with pytest.raises(FactNotFoundError):
                await facts.store.get(namespace, key, versions=True)
            with pytest.raises(FactNotFoundError):
                await facts.store.put(update)
            with pytest.raises(FactNotFoundError):
                await facts.store.update_content(namespace, key, "x")
            with pytest.raises(FactNotFoundError):
                await facts.store.delete(namespace, key)
    assert await contents(facts) == UNTOUCHED
    assert len(facts.changes()) == before


async def test_a_change_in_one_namespace_leaves_the_others_alone(facts: OpenedFacts) -> None:
    await fill(facts)
    expected = dict(UNTOUCHED)
    for number, labels in enumerate(COLLIDING):
        namespace = Namespace(labels)
        expected[labels] = f"changed {number}"
        if number % 2:
            await facts.store.update_content(namespace, KEY, expected[labels])
        else:
            await facts.put(KEY, expected[labels], namespace=labels)
        assert await contents(facts) == expected


async def test_a_deletion_in_one_namespace_leaves_the_others_alone(facts: OpenedFacts) -> None:
    await fill(facts)
    expected = dict(UNTOUCHED)
    for number, labels in enumerate(COLLIDING):
        namespace = Namespace(labels)
        del expected[labels]
        if number % 2:
            assert (await facts.store.delete(namespace, KEY)).outcome is WriteOutcome.DELETED
        else:
            assert (await facts.store.delete_many(FactFilter(namespace=namespace))).deleted_count == 1
        assert await contents(facts) == expected
        assert set(await listed(facts)) == set(expected)


async def test_a_renewal_in_one_namespace_does_not_extend_facts_of_the_others(facts: OpenedFacts) -> None:
    await fill(facts)
    facts.clock.pass_hours(0.5)
    renewed = COLLIDING[::3]
    await facts.store.renew([(Namespace(labels), KEY) for labels in renewed])
    facts.clock.pass_hours(0.75)
    assert set(await contents(facts)) == set(renewed)
    assert set(await listed(facts)) == set(renewed)
    assert await facts.store.sweep(facts.clock()) == len(COLLIDING) - len(renewed)
    assert set(await contents(facts)) == set(renewed)


async def test_all_namespaces_are_listed_once_whatever_the_page_size(facts: OpenedFacts) -> None:
    await fill(facts)
    for labels in COLLIDING[:10]:
        await facts.put("another key", "x", namespace=labels)
    whole = await listed(facts)
    assert sorted(whole) == sorted(COLLIDING)
    for page in (1, 7, 50):
        assert await listed(facts, page=page) == whole


@pytest.mark.parametrize("step", [2, 256])
async def test_namespaces_are_selected_by_their_first_and_last_labels_and_truncated(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_namespaces, "STEP", step)
    async with open_facts(tmp_path / "vault") as facts:
        await fill(facts)
        for prefix in ((), ("tenant",), ("tenant", "*"), ("*", "acme"), ("a",), ("nobody",), ("*", "*", "acme")):
            for suffix in ((), ("acme",), ("acme", "*")):
                for depth in (0, 1, 2):
                    asked = {"prefix": prefix, "suffix": suffix, "max_depth": depth}
                    expected = {labels[: depth or None] for labels in COLLIDING if chosen(labels, prefix, suffix)}
                    for page in (3, 1_000):
                        found = await listed(facts, page=page, **asked)
                        assert len(found) == len(set(found)), asked
                        assert set(found) == expected, asked


def chosen(labels: tuple[str, ...], prefix: tuple[str, ...], suffix: tuple[str, ...]) -> bool:
    """Whether a namespace has the requested first and last labels."""
    if len(labels) < max(len(prefix), len(suffix)):
        return False
    first, last = labels[: len(prefix)], labels[len(labels) - len(suffix) :]
    pairs = [*zip(first, prefix, strict=True), *zip(last, suffix, strict=True)]
    return all(wanted in ("*", label) for label, wanted in pairs)


async def test_a_namespace_with_only_expired_facts_is_not_listed(facts: OpenedFacts) -> None:
    await facts.put("ends", "x", ttl=timedelta(hours=1))
    await facts.put("ends", "x", namespace=("org", "mixed"), ttl=timedelta(hours=1))
    await facts.put("stays", "x", namespace=("org", "mixed"))
    assert await listed(facts) == [HERE, ("org", "mixed")]
    facts.clock.pass_hours(1)
    assert await listed(facts) == [("org", "mixed")]
    await facts.store.sweep(facts.clock())
    assert await listed(facts) == [("org", "mixed")]
    assert await listed(facts, max_depth=1) == [("org",)]


async def test_errors_in_a_pattern_are_named(facts: OpenedFacts) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await facts.store.namespaces(prefix=("a\0b",), suffix=("ok", ""), max_depth=-1, limit=9)
    assert fields_of(caught.value) == ["prefix[0]", "suffix[1]", "max_depth"]
