# Generated from _async/client.py by `make generate`: change that file instead.
"""The blocking client."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, overload

import grpc

from mnemon._authorization import Token
from mnemon._channel import DEFAULT_TIMEOUT_S, PathLike, Target
from mnemon._connection import Connection
from mnemon._messages.convert import invalid
from mnemon._messages.translation import read
from mnemon._sync.archive import Archive
from mnemon._sync.backups import Backups
from mnemon._sync.bridge import Bridge
from mnemon._sync.changes import Changes
from mnemon._sync.conflicts import Conflicts
from mnemon._sync.conversations import Conversations
from mnemon._sync.documents import Documents
from mnemon._sync.erasures import Erasures
from mnemon._sync.facts import Facts
from mnemon._sync.grants import Grants
from mnemon._sync.keys import Keys
from mnemon._sync.memories import Memories
from mnemon._sync.quarantine import Quarantines
from mnemon._sync.recall import Recall
from mnemon._sync.rules import Rules
from mnemon._sync.semantic import Semantic
from mnemon._sync.tenants import Tenants
from mnemon._sync.timeline import Timeline
from mnemon._sync.tools import Tools
from mnemon._values import documents as values
from mnemon._values import memories
from mnemon._values.access import Identity
from mnemon._values.conversations import ConversationMessage, MessageReceipt
from mnemon._values.server import ServerInfo
from mnemon.v1 import access_pb2
from mnemon.v1 import server_pb2 as pb
from mnemon.v1.access_pb2_grpc import AccessServiceStub
from mnemon.v1.server_pb2_grpc import ServerServiceStub


class Client:
    """A client of a Mnemon server, safe to share between threads.

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

        with Client("127.0.0.1:50051") as client:
            client.remember("Ada dislikes early flights.", type="preference", user="ada")
            print(client.recall("When should Ada fly?", user="ada"))
            client.documents.put("note-1", "Ada prefers window seats.", {"topic": "travel"})
            print(client.documents.search("Where does Ada sit?"))
            client.semantic.add("Ada lives in Berlin.", user="ada", conflict_policy="resolve")
            client.timeline.add("conversation", "Ada asked for the train.", user="ada")

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
        token: Token | None = None,
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
        self._use(Connection(target))

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self.documents = Documents(connection)
        self.memories = Memories(connection)
        self.semantic = Semantic(connection)
        self.conflicts = Conflicts(connection)
        self.rules = Rules(connection)
        self.timeline = Timeline(connection)
        self.conversations = Conversations(connection)
        self.bridge = Bridge(connection)
        self.facts = Facts(connection)
        self.tools = Tools(connection)
        self.archive = Archive(connection)
        self.backups = Backups(connection)
        self.erasures = Erasures(connection)
        self.quarantine = Quarantines(connection)
        self.changes = Changes(connection)
        self.keys = Keys(connection)
        self.grants = Grants(connection)
        self.tenants = Tenants(connection)
        self.recall = Recall(connection).recall
        self.watch = self.changes.watch

    @overload
    def remember(
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
    def remember(
        self,
        *,
        messages: Sequence[ConversationMessage | Mapping[str, Any]],
        conversation: str,
        request_id: str | None = None,
        timeout: float | None = None,
        **scope: Unpack[values.ScopeFields],
    ) -> tuple[MessageReceipt, ...]: ...

    def remember(
        self,
        content: str | None = None,
        *,
        messages: Sequence[ConversationMessage | Mapping[str, Any]] | None = None,
        conversation: str | None = None,
        **fields: Any,
    ) -> memories.Memory | tuple[MessageReceipt, ...]:
        """Remembers a text as a memory, or `messages` as turns of a `conversation`; `recall` finds either.

            client.remember("Ada dislikes early flights.", user="ada")
            turns = [{"role": "user", "content": "I moved to Bern."}]
            client.remember(messages=turns, conversation="c1", user="ada")

        A text takes the keyword arguments of `memories.add`, and returns the memory. Messages take those of
        `conversations.append`, and return a receipt for each.
        """
        if (content is None) == (messages is None):
            raise invalid("content", "must be a text to remember; or else give messages=[...] with a conversation")
        if content is None:
            if not conversation:
                raise invalid("conversation", 'must name the conversation of the messages, such as "c1"')
            return self.conversations.append(conversation, messages or (), **fields)
        if conversation is not None or not isinstance(content, str):
            raise invalid("messages", 'must have the turns, such as [{"role": "user", "content": "I moved to Bern."}]')
        return self.memories.add(content, **fields)

    def acting_as(self, credential: str) -> "Client":
        """Returns a client of the same server for another caller, with that one's API key or token.

        It has a connection of its own; close it, too. Raises ValueError if the text cannot be a credential.
        """
        acting = Client.__new__(Client)
        acting._use(Connection(self._connection.target.acting_as(credential)))
        return acting

    @property
    def address(self) -> str:
        """The address that is dialled."""
        return self._connection.target.address

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns version, capabilities, limits, embedding model and vault of the server."""
        stub = self._connection.stub(ServerServiceStub)
        answer = self._connection.call(stub.GetServerInfo, pb.GetServerInfoRequest(), timeout)
        return read(ServerInfo, answer)

    def who_am_i(self, *, timeout: float | None = None) -> Identity:
        """Returns the tenant, the name and the role of the caller."""
        stub = self._connection.stub(AccessServiceStub)
        return read(Identity, self._connection.call(stub.WhoAmI, access_pb2.WhoAmIRequest(), timeout))

    def wait_until_ready(self, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Waits until the server serves. Raises DeadlineExceededError after `timeout` seconds."""
        self._connection.wait_until_ready(timeout)

    def close(self) -> None:
        """Ends the connection and the calls in flight. Calling it again does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._connection.closed_because else "open"
        return f"<{type(self).__name__} {self._connection.name!r} ({state})>"
