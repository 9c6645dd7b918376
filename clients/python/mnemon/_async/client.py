"""The asyncio client."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, overload

import grpc

from mnemon._async.archive import AsyncArchive
from mnemon._async.backups import AsyncBackups
from mnemon._async.bridge import AsyncBridge
from mnemon._async.changes import AsyncChanges
from mnemon._async.conflicts import AsyncConflicts
from mnemon._async.conversations import AsyncConversations
from mnemon._async.documents import AsyncDocuments
from mnemon._async.erasures import AsyncErasures
from mnemon._async.facts import AsyncFacts
from mnemon._async.grants import AsyncGrants
from mnemon._async.keys import AsyncKeys
from mnemon._async.memories import AsyncMemories
from mnemon._async.quarantine import AsyncQuarantines
from mnemon._async.recall import AsyncRecall
from mnemon._async.rules import AsyncRules
from mnemon._async.semantic import AsyncSemantic
from mnemon._async.tenants import AsyncTenants
from mnemon._async.timeline import AsyncTimeline
from mnemon._async.tools import AsyncTools
from mnemon._authorization import AsyncToken
from mnemon._channel import DEFAULT_TIMEOUT_S, PathLike, Target
from mnemon._connection import AsyncConnection
from mnemon._messages.convert import invalid
from mnemon._messages.translation import read
from mnemon._values import documents as values
from mnemon._values import memories
from mnemon._values.access import Identity
from mnemon._values.conversations import ConversationMessage, MessageReceipt
from mnemon._values.server import ServerInfo
from mnemon.v1 import access_pb2
from mnemon.v1 import server_pb2 as pb
from mnemon.v1.access_pb2_grpc import AccessServiceStub
from mnemon.v1.server_pb2_grpc import ServerServiceStub


class AsyncClient:
    """A client of a Mnemon server, for one event loop at a time.

    It has an object for each kind of record, and all of them use its one connection:

        documents   texts under your own ids, searched by meaning and by word
        memories    what is remembered with a confidence that decays
        semantic    statements about users, without duplicates
        conflicts   statements that conflict: detect, decide, merge, undo
        rules       the rules by which conflicts are decided
        timeline    events, ordered by when they happened
        conversations   what was said, in order, and what to read before an answer
        bridge      makes statements of events
        facts       JSON objects under keys of namespaces
        tools       memory as tools for a language model
        archive     everything, exported to lines of JSON and imported again
        backups     copies of the whole vault, to restore it from
        erasures    what is erased for good, with a receipt
        quarantine  sources whose records are hidden
        changes     every change, in order
        keys        API keys, on a server with authentication
        grants      records that callers share with each other
        tenants     the tenants of a server, for operators

    `remember` keeps a sentence or turns of a conversation, `recall` searches all kinds at once, and `watch` is
    `changes.watch`.

        async with AsyncClient("127.0.0.1:50051") as client:
            await client.remember("Ada dislikes early flights.", type="preference", user="ada")
            print(await client.recall("When should Ada fly?", user="ada"))
            await client.documents.put("note-1", "Ada prefers window seats.", {"topic": "travel"})
            print(await client.documents.search("Where does Ada sit?"))
            await client.semantic.add("Ada lives in Berlin.", user="ada", conflict_policy="resolve")
            await client.timeline.add("conversation", "Ada asked for the train.", user="ada")

    All methods raise subclasses of `MnemonError`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        tls: bool = False,
        ca_file: PathLike | None = None,
        certificate_file: PathLike | None = None,
        key_file: PathLike | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        insecure: bool = False,
        api_key: str | None = None,
        token: AsyncToken | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Prepares a connection. The client does not connect before the first call.

        It repeats a call up to three times while the server is unavailable. Writes carry a request_id, so a repeated
        write happens once.

        Args:
            address: host:port or unix:path. Its default is MNEMON_ADDRESS, then 127.0.0.1:50051.
            tls: encrypts the connection, with the system's roots. Plaintext is for this machine only.
            ca_file: encrypts it, with the roots of this PEM file.
            certificate_file: encrypts it, and is the client's certificate; a PEM file.
            key_file: the private key of that certificate; a PEM file.
            credentials: encrypts it, with these.
            insecure: permits plaintext to another machine.
            api_key: who you are, for a server with authentication. Its default is MNEMON_API_KEY,
                unless there is a certificate.
            token: who you are by a token of an identity provider; or a function that returns one, which is called again
                before the token expires, and once after the server has refused it.
            timeout: the deadline of each call in seconds; every method can override it.
        """
        target = Target.resolve(
            address,
            tls=tls,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            credentials=credentials,
            insecure=insecure,
            timeout=timeout,
            api_key=api_key,
            token=token,
        )
        self._use(AsyncConnection(target))

    def _use(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.documents = AsyncDocuments(connection)
        self.memories = AsyncMemories(connection)
        self.semantic = AsyncSemantic(connection)
        self.conflicts = AsyncConflicts(connection)
        self.rules = AsyncRules(connection)
        self.timeline = AsyncTimeline(connection)
        self.conversations = AsyncConversations(connection)
        self.bridge = AsyncBridge(connection)
        self.facts = AsyncFacts(connection)
        self.tools = AsyncTools(connection)
        self.archive = AsyncArchive(connection)
        self.backups = AsyncBackups(connection)
        self.erasures = AsyncErasures(connection)
        self.quarantine = AsyncQuarantines(connection)
        self.changes = AsyncChanges(connection)
        self.keys = AsyncKeys(connection)
        self.grants = AsyncGrants(connection)
        self.tenants = AsyncTenants(connection)
        self.recall = AsyncRecall(connection).recall
        self.watch = self.changes.watch

    @overload
    async def remember(
        self,
        content: str,
        *,
        decay: str = memories.DecayPolicy.STABLE,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        memory_id: str = "",
        embedding: Sequence[float] | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
        **tags: Unpack[memories.MemoryTags],
    ) -> memories.Memory: ...

    @overload
    async def remember(
        self,
        *,
        messages: Sequence[ConversationMessage | Mapping[str, Any]],
        conversation: str,
        request_id: str | None = None,
        timeout: float | None = None,
        **scope: Unpack[values.ScopeFields],
    ) -> tuple[MessageReceipt, ...]: ...

    async def remember(
        self,
        content: str | None = None,
        *,
        messages: Sequence[ConversationMessage | Mapping[str, Any]] | None = None,
        conversation: str | None = None,
        **fields: Any,
    ) -> memories.Memory | tuple[MessageReceipt, ...]:
        """Remembers a text as a memory, or `messages` as turns of a `conversation`; `recall` finds either.

            await client.remember("Ada dislikes early flights.", user="ada")
            turns = [{"role": "user", "content": "I moved to Bern."}]
            await client.remember(messages=turns, conversation="c1", user="ada")

        A text takes the keyword arguments of `memories.add`, and returns the memory. Messages take those of
        `conversations.append`, and return a receipt for each.
        """
        if (content is None) == (messages is None):
            raise invalid("content", "must be a text to remember; or else give messages=[...] with a conversation")
        if content is None:
            if not conversation:
                raise invalid("conversation", 'must name the conversation of the messages, such as "c1"')
            return await self.conversations.append(conversation, messages or (), **fields)
        if conversation is not None or not isinstance(content, str):
            raise invalid("messages", 'must have the turns, such as [{"role": "user", "content": "I moved to Bern."}]')
        return await self.memories.add(content, **fields)

    def acting_as(self, credential: str) -> "AsyncClient":
        """Returns a client of the same server for another caller, with that one's API key or token.

        It has a connection of its own; close it, too. Raises ValueError if the text cannot be a credential.
        """
        acting = AsyncClient.__new__(AsyncClient)
        acting._use(AsyncConnection(self._connection.target.acting_as(credential)))
        return acting

    @property
    def address(self) -> str:
        """The address that is dialled."""
        return self._connection.target.address

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns version, capabilities, limits, embedding model and vault of the server."""
        stub = self._connection.stub(ServerServiceStub)
        answer = await self._connection.call(stub.GetServerInfo, pb.GetServerInfoRequest(), timeout)
        return read(ServerInfo, answer)

    async def who_am_i(self, *, timeout: float | None = None) -> Identity:
        """Returns the tenant, the name and the role of the caller."""
        stub = self._connection.stub(AccessServiceStub)
        return read(Identity, await self._connection.call(stub.WhoAmI, access_pb2.WhoAmIRequest(), timeout))

    async def wait_until_ready(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the server serves. Raises DeadlineExceededError after `timeout` seconds."""
        await self._connection.wait_until_ready(timeout)

    async def close(self) -> None:
        """Ends the connection and the calls in flight. Calling it again does nothing."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._connection.closed_because else "open"
        return f"<{type(self).__name__} {self._connection.name!r} ({state})>"
