"""RulesService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import rules_pb2 as pb
from mnemon.v1 import rules_pb2_grpc

from mnemon_server.transport.convert import rules as convert
from mnemon_server.transport.convert.shared.reader import expected_revision
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer


class RulesServicer(TenantServicer, rules_pb2_grpc.RulesServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def RegisterRule(self, request: pb.RegisterRuleRequest, context: Context) -> pb.RegisterRuleResponse:
        rule = convert.read_rule(request)
        async with self.vault() as vault:
            receipt = await vault.rules.register(rule, request_id=request.request_id)
        return convert.fill_receipt(pb.RegisterRuleResponse(), receipt)

    async def GetRule(self, request: pb.GetRuleRequest, context: Context) -> pb.GetRuleResponse:
        async with self.vault() as vault:
            receipt = await vault.rules.get(request.name)
        return convert.fill_receipt(pb.GetRuleResponse(), receipt)

    async def UpdateRule(self, request: pb.UpdateRuleRequest, context: Context) -> pb.UpdateRuleResponse:
        changes, mask = convert.read_update(request)
        async with self.vault() as vault:
            receipt = await vault.rules.update(
                changes,
                mask=mask,
                expected_revision=expected_revision(request),
                request_id=request.request_id,
            )
        return convert.fill_receipt(pb.UpdateRuleResponse(), receipt)

    async def DeleteRule(self, request: pb.DeleteRuleRequest, context: Context) -> pb.DeleteRuleResponse:
        async with self.vault() as vault:
            deleted = await vault.rules.delete(
                request.name,
                force=request.force,
                allow_missing=request.allow_missing,
                expected_revision=expected_revision(request),
                request_id=request.request_id,
            )
        return convert.deleted_to_pb(deleted)

    async def ListRules(self, request: pb.ListRulesRequest, context: Context) -> pb.ListRulesResponse:
        order, limit = convert.read_list(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.rules.list(order, after=pages.position(), limit=limit)
        return convert.page_to_pb(page, pages.next(page.next_position))

    async def FindMatchingRule(
        self, request: pb.FindMatchingRuleRequest, context: Context
    ) -> pb.FindMatchingRuleResponse:
        candidate, existing = convert.read_pair(request)
        async with self.vault() as vault:
            rule = await vault.rules.find_matching(candidate, existing)
        response = pb.FindMatchingRuleResponse()
        convert.fill_resolved(response.rule, rule)
        return response

    async def ResolveRule(self, request: pb.ResolveRuleRequest, context: Context) -> pb.ResolveRuleResponse:
        async with self.vault() as vault:
            rule = await vault.rules.resolve(request.name)
        return convert.resolved_to_pb(rule)

    async def ExportRules(self, request: pb.ExportRulesRequest, context: Context) -> pb.ExportRulesResponse:
        async with self.vault() as vault:
            rules, version = await vault.rules.export()
        return convert.export_to_pb(rules, version)

    async def LoadRules(self, request: pb.LoadRulesRequest, context: Context) -> pb.LoadRulesResponse:
        rules = convert.read_load(request)
        async with self.vault() as vault:
            loaded = await vault.rules.load(
                rules,
                replace_all=request.replace_all,
                lenient=request.lenient,
                request_id=request.request_id,
            )
        return convert.loaded_to_pb(loaded)

    async def ResetRules(self, request: pb.ResetRulesRequest, context: Context) -> pb.ResetRulesResponse:
        async with self.vault() as vault:
            version = await vault.rules.reset(request_id=request.request_id)
        return pb.ResetRulesResponse(registry_version=version)
