"""The passages of documents, in memory, are those of the last commit, whatever happened before."""

import random
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.engines.sqlite import passage_map
from mnemon_server.engines.sqlite.passage_map import PassageMap, PassageRun
from mnemon_server.engines.sqlite.schema import open_writer
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.engines.vault_key import VaultKeyFile

STEPS, POSITIONS_MAX, PASSAGES_MAX = 600, 400, 4


def test_it_follows_any_sequence_of_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_map, "CAPACITY_MIN", 8)
    rng = random.Random(5)
    passages = PassageMap(Tables(MEMORIES), open_writer(tmp_path / "records.db", VaultKeyFile(tmp_path)))
    expected: dict[int, list[int]] = {}
    next_id, next_position = 1, 1
    for _ in range(STEPS):
        if rng.random() < 0.1:
            passages.stage([PassageRun(rng.randrange(1, next_position + 1))])
            passages.discard()
        for _ in range(rng.randrange(5)):
            if rng.random() < 0.5 and next_position < POSITIONS_MAX:
                next_position += rng.randrange(1, 4)
                position, size = next_position, rng.randrange(PASSAGES_MAX)
            else:
                position, size = rng.randrange(1, next_position + 1), rng.choice([0, 0, 1, PASSAGES_MAX])
            passages.stage([PassageRun(position, next_id, size) if size else PassageRun(position)])
            expected[position] = list(range(next_id, next_id + size))
            next_id += size
        passages.publish()
        wanted = rng.sample(range(next_position + 5), min(20, next_position))
        found = passages.of(np.array(wanted, np.int64))
        assert found.tolist() == sorted(each for position in wanted for each in expected.get(position, []))
        assert passages.all().tolist() == sorted(each for ids in expected.values() for each in ids)
