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

    `address` is host:port or unix:path; else MNEMON_ADDRESS counts, else 127.0.0.1:50051. Plaintext is for this machine
    only: another one needs `tls` (with the system's roots, or those of `ca_file`), `credentials`, or `insecure`.
    `timeout` is the deadline of each call in seconds, which every method can set for itself. Nothing is dialled before
    the first call. Calls are repeated up to three times while the server is unavailable; writes carry a request_id, so
    that a repeated one happens once. All methods raise the classes of `MnemonError`.

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
        """What the vault holds, as lines of JSON: exported, and imported again."""
        return Archive(self)

    @property
    def facts(self) -> Facts:
        """JSON objects under keys of namespaces: what tools store, and what applications store beside them."""
        return Facts(self)

    @property
    def tools(self) -> Tools:
        """Memory as a language model uses it: what it is told of the tools, and what it calls."""
        return Tools(self)
