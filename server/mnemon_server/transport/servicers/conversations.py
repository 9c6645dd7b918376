"""ConversationService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import conversation_pb2 as pb
from mnemon.v1 import conversation_pb2_grpc

from mnemon_server.domain.events import LIMIT_DEFAULT
from mnemon_server.transport.convert import conversations as convert
from mnemon_server.transport.convert.shared.reader import read_page_size
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer
from mnemon_server.wire.values import scope_of


class ConversationServicer(TenantServicer, conversation_pb2_grpc.ConversationServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def AppendMessages(self, request: pb.AppendMessagesRequest, context: Context) -> pb.AppendMessagesResponse:
        messages = await convert.read_messages(request)
        async with self.vault() as vault:
            receipts = await vault.conversations.append(
                convert.read_key(request), messages, request_id=request.request_id
            )
        return convert.receipts_to_pb(receipts)

    async def ListMessages(self, request: pb.ListMessagesRequest, context: Context) -> pb.ListMessagesResponse:
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            query = convert.read_query(request, pages.position())
            page = await vault.conversations.messages(convert.read_key(request), query, room=self.room())
        return await convert.page_to_pb(page, pages.next(page.next_position))

    async def ListConversations(
        self, request: pb.ListConversationsRequest, context: Context
    ) -> pb.ListConversationsResponse:
        limit = read_page_size(request, LIMIT_DEFAULT)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            after = pages.conversation_position()
            page = await vault.conversations.conversations(scope_of(request), after=after, limit=limit)
        return convert.conversations_to_pb(page, pages.next(page.next_position))

    async def GetConversationContext(
        self, request: pb.GetConversationContextRequest, context: Context
    ) -> pb.GetConversationContextResponse:
        query = convert.read_context(request)
        async with self.vault() as vault:
            found = await vault.conversations.context(convert.read_key(request), query, room=self.room())
        return await convert.context_to_pb(found)

    async def DeleteMessages(self, request: pb.DeleteMessagesRequest, context: Context) -> pb.DeleteMessagesResponse:
        which = convert.read_deleted(request)
        async with self.vault() as vault:
            pruned = await vault.conversations.delete(convert.read_key(request), which, request_id=request.request_id)
        return pb.DeleteMessagesResponse(deleted_count=pruned.count, replayed=pruned.replayed)

    async def DeleteConversation(
        self, request: pb.DeleteConversationRequest, context: Context
    ) -> pb.DeleteConversationResponse:
        async with self.vault() as vault:
            pruned = await vault.conversations.delete_conversation(
                convert.read_key(request), allow_missing=request.allow_missing, request_id=request.request_id
            )
        return pb.DeleteConversationResponse(deleted_count=pruned.count, replayed=pruned.replayed)
