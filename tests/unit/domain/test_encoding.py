"""Digests stay the same from version to version: vaults keep them."""

from datetime import UTC, datetime

from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.records import Scope


def test_the_digest_of_a_document_is_the_one_that_vaults_hold() -> None:
    document = Document(
        "id",
        'Grüße "东京" \\ \t\x01 👋',
        {"n": 1, "list": ("a", "b"), "time": datetime(2026, 1, 1, tzinfo=UTC)},
        scope=Scope(user="ü", agent="x"),
        fields={"b": True, "a": "text", "number": 1, "none": None},
        hidden=True,
    )

    assert document_digest(document).hex() == "ba9c9e8a841d09fc59055fa7b810840f164e555638d7fb6b9cc3ac453c98e75f"
