"""The asyncio client."""

from mnemon._async.archive import AsyncArchive
from mnemon._async.bridge import AsyncBridgeMethods
from mnemon._async.conflicts import AsyncConflictMethods
from mnemon._async.documents import AsyncDocumentMethods
from mnemon._async.facts import AsyncFacts
from mnemon._async.feed import AsyncChangeMethods
from mnemon._async.memories import AsyncMemoryMethods
from mnemon._async.rules import AsyncRuleMethods
from mnemon._async.semantic import AsyncSemanticMethods
from mnemon._async.server import AsyncServerMethods
from mnemon._async.timeline import AsyncTimelineMethods
from mnemon._async.tools import AsyncTools


class AsyncClient(
    AsyncDocumentMethods,
    AsyncMemoryMethods,
    AsyncSemanticMethods,
    AsyncConflictMethods,
    AsyncRuleMethods,
    AsyncTimelineMethods,
    AsyncBridgeMethods,
    AsyncChangeMethods,
    AsyncServerMethods,
):
    """A connection to a Mnemon server, for one event loop.

    `address` is host:port or unix:path; else MNEMON_ADDRESS counts, else 127.0.0.1:50051. Plaintext is for this machine
    only: another one needs `tls` (with the system's roots, or those of `ca_file`), `credentials`, or `insecure`.
    `timeout` is the deadline of each call in seconds, which every method can set for itself. Nothing is dialled before
    the first call. Calls are repeated up to three times while the server is unavailable; writes carry a request_id, so
    that a repeated one happens once. All methods raise the classes of `MnemonError`.

        async with AsyncClient("127.0.0.1:50051") as memory:
            await memory.index("note-1", "Ada prefers window seats.", {"topic": "travel"})
            hits = await memory.search("Where does Ada sit?")
            await memory.remember("Ada dislikes early flights.", type="preference", user="ada")
            facts = await memory.recall("When should Ada fly?", user="ada")
            await memory.save_semantic("Ada lives in Berlin.", user="ada", conflict_policy="resolve")
            await memory.record_event("conversation", "Ada asked for the train.", user="ada")
    """

    @property
    def archive(self) -> AsyncArchive:
        """What the vault holds, as lines of JSON: exported, and imported again."""
        return AsyncArchive(self)

    @property
    def facts(self) -> AsyncFacts:
        """JSON objects under keys of namespaces: what tools store, and what applications store beside them."""
        return AsyncFacts(self)

    @property
    def tools(self) -> AsyncTools:
        """Memory as a language model uses it: what it is told of the tools, and what it calls."""
        return AsyncTools(self)
