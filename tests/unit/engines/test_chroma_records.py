"""The form of a passage in ChromaDB, whose collection other clients read too."""

from datetime import UTC, datetime

import numpy as np
from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import Scope
from mnemon_server.engines.chroma.records import to_record
from mnemon_server.engines.promises.vector_index import IndexEntry


def test_fields_of_a_collection_have_metadata_names_that_no_document_uses() -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    fields = {"type": "fact", "personality": "", "global": False, "reinforce_time": time, "delete_time": None}
    document = Document("m", "text", {"type": "own"}, scope=Scope(user="ada"), fields=fields)
    record = to_record(IndexEntry(7, "m", 0, "text", np.zeros(2, np.float32), document))
    assert record["metadata"] == {
        "type": "own",
        "mnemon:user": "ada",
        "mnemon:type": "fact",
        "mnemon:global": False,
        "mnemon:reinforce_time": "2026-01-02T03:04:05.000006+00:00",
        "mnemon:doc_id": "m",
        "mnemon:passage": 0,
        "mnemon:passage_id": 7,
    }
