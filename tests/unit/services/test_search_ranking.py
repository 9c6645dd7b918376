"""The order of search results when there are few documents."""

import numpy as np
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document, Passage, SearchQuery
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, Vector
from mnemon_server.services.documents.search import DocumentSearch
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import SearchSettings

from tests.support.vaults import temporary_vault

WAIT_S = 60.0


def at_cosine(cosine: float) -> Vector:
    return np.array([cosine, np.sqrt(1 - cosine**2)], np.float32)


def test_documents_unlike_the_query_are_not_found() -> None:
    with temporary_vault(dimension=2) as vault:
        records = vault.collection(DOCUMENTS)
        for cosine in (-0.9, 0.1, 0.5, 0.0):
            document = Document(str(cosine), "text", passages=(Passage(0, 0, 4),))
            write = DocumentWrite(document=document, passages=[PassageInput(0, 4, at_cosine(cosine))])
            records.put_document(write).result(WAIT_S)

        settings = SearchSettings(exact_scan_max=10, threads=1)
        passages = PassageSearch(records, lambda _: at_cosine(1.0), settings=settings)
        answer = DocumentSearch(passages, "local").find(SearchQuery(text="other", mode=SearchMode.VECTOR))
        passages.close()
    assert [(result.doc_id, round(result.score, 6)) for result in answer.results] == [("0.5", 0.5), ("0.1", 0.1)]
