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

    `address` is host:port or unix:path. Its default is MNEMON_ADDRESS, then 127.0.0.1:50051. Plaintext is for this
    machine only. For another machine, pass `tls` (with the system's roots, or those of `ca_file`), `credentials`, or
    `insecure`. `timeout` is the deadline of each call in seconds; every method can override it. The client does not
    connect before the first call. It repeats a call up to three times while the server is unavailable. Writes carry a
    request_id, so a repeated write happens once. All methods raise subclasses of `MnemonError`.

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
        """The contents of the vault as lines of JSON: export and import."""
        return AsyncArchive(self)

    @property
    def facts(self) -> AsyncFacts:
        """JSON objects under keys of namespaces: what tools store, and what applications store."""
        return AsyncFacts(self)

    @property
    def tools(self) -> AsyncTools:
        """Memory for a language model: the tools' descriptions, and calls of the tools."""
        return AsyncTools(self)
