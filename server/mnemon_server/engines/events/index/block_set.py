"""An immutable set of a vault's blocks, with a look-up by time range."""

from collections.abc import Iterable, Iterator

import numpy as np

from mnemon_server.engines.events.index.blocks import BlockView
from mnemon_server.engines.events.index.open_block import OpenBlock
from mnemon_server.engines.events.index.rows import Times
from mnemon_server.engines.events.index.sealed_block import SealedBlock

Block = OpenBlock | SealedBlock


class BlockSet:
    """Blocks by segment. When a block is added, removed or exchanged, a new set replaces this one."""

    def __init__(self, blocks: Iterable[Block] = (), user_counts: Times | None = None) -> None:
        """`user_counts` is the number of rows of each user in the sealed ones of these blocks, if there are any."""
        self._user_counts = np.empty(0, np.int64) if user_counts is None else user_counts
        self._blocks = {block.segment_id: block for block in blocks}
        self._opened = [block for block in self._blocks.values() if isinstance(block, OpenBlock)]
        self._sealed = [block for block in self._blocks.values() if isinstance(block, SealedBlock)]
        self._min_times: Times = np.array([block.min_time for block in self._sealed], np.int64)
        self._max_times: Times = np.array([block.max_time for block in self._sealed], np.int64)

    def __iter__(self) -> Iterator[Block]:
        """All blocks, in the order of their segments."""
        return iter(self._blocks.values())

    def get(self, segment_id: int) -> Block | None:
        """The block of a segment."""
        return self._blocks.get(segment_id)

    def exchanged(self, segment_ids: Iterable[int], *blocks: Block) -> "BlockSet":
        """A set without these segments and with these blocks."""
        gone = self._blocks.keys() & set(segment_ids)
        kept = [block for segment_id, block in self._blocks.items() if segment_id not in gone]
        counts = _changed(self._user_counts, [self._blocks[segment_id] for segment_id in gone], blocks)
        return BlockSet(sorted([*kept, *blocks], key=lambda block: block.segment_id), counts)

    def sealed_count(self, user: int) -> int:
        """The number of rows of a user in sealed blocks, including dead events."""
        return self._user_counts.item(user) if user < len(self._user_counts) else 0

    def views(self) -> list[BlockView]:
        """Views of all blocks."""
        return [block.view() for block in self._blocks.values()]

    def overlapping(self, start_us: int, end_us: int) -> list[BlockView]:
        """Views of the blocks that may contain events in a time range, both ends included."""
        opened = (block.view() for block in self._opened)
        concerned = np.flatnonzero((self._max_times >= start_us) & (self._min_times <= end_us)).tolist()
        return [
            *(view for view in opened if view.max_time >= start_us and view.min_time <= end_us),
            *(self._sealed[position] for position in concerned),
        ]


def _changed(counts: Times, gone: Iterable[Block], come: Iterable[Block]) -> Times:
    changes = [
        (sign, *block.user_sizes())
        for sign, blocks in ((-1, gone), (1, come))
        for block in blocks
        if isinstance(block, SealedBlock)
    ]
    length = max([len(counts), *(int(users.max(initial=0)) + 1 for _, users, _ in changes)])
    changed = np.zeros(length, np.int64)
    changed[: len(counts)] = counts
    for sign, users, sizes in changes:
        changed[users] += sign * sizes
    return changed
