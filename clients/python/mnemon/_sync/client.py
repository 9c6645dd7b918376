# Generated from _async/client.py by `make generate`: change that file instead.
"""The blocking client."""

from mnemon._sync.archive import Archive
from mnemon._sync.bridge import BridgeMethods
from mnemon._sync.conflicts import ConflictMethods
from mnemon._sync.documents import DocumentMethods
from mnemon._sync.facts import Facts
from mnemon._sync.feed import ChangeMethods
from mnemon._sync.memories import MemoryMethods
from mnemon._sync.rules import RuleMethods
from mnemon._sync.semantic import SemanticMethods
from mnemon._sync.server import ServerMethods
from mnemon._sync.timeline import TimelineMethods
from mnemon._sync.tools import Tools


class Client(
    DocumentMethods,
    MemoryMethods,
    SemanticMethods,
    ConflictMethods,
    RuleMethods,
    TimelineMethods,
    BridgeMethods,
    ChangeMethods,
    ServerMethods,
):
    """A connection to a Mnemon server, safe to share between threads.

    `address` is host:port or unix:path. Its default is MNEMON_ADDRESS, then 127.0.0.1:50051. Plaintext is for this
    machine only. For another machine, pass `tls` (with the system's roots, or those of `ca_file`), `credentials`, or
    `insecure`. `timeout` is the deadline of each call in seconds; every method can override it. The client does not
    connect before the first call. It repeats a call up to three times while the server is unavailable. Writes carry a
    request_id, so a repeated write happens once. All methods raise subclasses of `MnemonError`.

        with Client("127.0.0.1:50051") as memory:
            memory.index("note-1", "Ada prefers window seats.", {"topic": "travel"})
            hits = memory.search("Where does Ada sit?")
            memory.remember("Ada dislikes early flights.", type="preference", user="ada")
            facts = memory.recall("When should Ada fly?", user="ada")
            memory.save_semantic("Ada lives in Berlin.", user="ada", conflict_policy="resolve")
            memory.record_event("conversation", "Ada asked for the train.", user="ada")
    """

    @property
    def archive(self) -> Archive:
        """The contents of the vault as lines of JSON: export and import."""
        return Archive(self)

    @property
    def facts(self) -> Facts:
        """JSON objects under keys of namespaces: what tools store, and what applications store."""
        return Facts(self)

    @property
    def tools(self) -> Tools:
        """Memory for a language model: the tools' descriptions, and calls of the tools."""
        return Tools(self)
