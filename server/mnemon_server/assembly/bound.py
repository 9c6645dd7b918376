"""A vault's services as callers with bounds see them."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mnemon_server.assembly.stores import feed_readers
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.collections import DOCUMENTS, MEMORIES
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.bound.records import refused
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.vaults import OpenVault

VIEWS_MAX = 1_000
"""How many views are kept. A view is a few small objects, made anew in less than a millisecond."""


class _Refusing:
    """In place of a service that knows no bounds, should a call reach it."""

    def __getattr__(self, name: str) -> Any:
        raise refused()


def views_of(vault: Vault) -> Callable[[OpenVault, Bounds], OpenVault]:
    """A function that returns the open vault within bounds."""
    views: OrderedDict[Bounds, OpenVault] = OrderedDict()

    def within(whole: OpenVault, bounds: Bounds) -> OpenVault:
        if bounds in views:
            views.move_to_end(bounds)
            return views[bounds]
        view = views[bounds] = _view(whole, vault, bounds)
        if len(views) > VIEWS_MAX:
            views.popitem(last=False)
        return view

    return within


def _view(whole: OpenVault, vault: Vault, bounds: Bounds) -> OpenVault:
    part, refusing = BoundVault(vault, bounds), _Refusing()
    others: dict[str, Any] = dict.fromkeys(("rules", "bridge", "archive", "backups", "erasure"), refusing)
    memories = whole.memories.over(part.collection(MEMORIES), bounds)
    facts = whole.facts.over(part)
    return replace(
        whole,
        documents=whole.documents.over(part.collection(DOCUMENTS)),
        memories=memories,
        semantic=whole.semantic.over(part),
        conflicts=whole.conflicts.over(part, bounds),
        facts=facts,
        episodic=whole.episodic.over(part.events),
        feed=whole.feed.within(bounds, feed_readers(part, memories)),
        tools=whole.tools.over(facts, bounds, bounds.digest(vault.changes.origin, b"requests").hex()),
        page_key=bounds.digest(vault.changes.epoch, b"pages"),
        **others,
    )
