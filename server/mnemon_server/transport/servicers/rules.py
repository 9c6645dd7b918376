"""RulesService over gRPC. Every method has the same steps: check what may be no value, convert, call, convert."""

from mnemon.v1 import rules_pb2 as pb
from mnemon.v1 import rules_pb2_grpc

from mnemon_server.transport.checks import rules as checks
from mnemon_server.transport.convert import rules as convert
from mnemon_server.transport.convert.semantic_requests import statement_from_pb
from mnemon_server.transport.convert.shared.reading import page_size
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer


class RulesServicer(TenantServicer, rules_pb2_grpc.RulesServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def RegisterRule(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.RegisterRuleRequest, context: Context
    ) -> pb.RegisterRuleResponse:
        checks.check_rule(request)
        async with self.vault(context) as vault:
            receipt = await vault.rules.register(convert.rule_from_pb(request.rule), request_id=request.request_id)
        return convert.fill_receipt(pb.RegisterRuleResponse(), receipt)

    async def GetRule(self, request: pb.GetRuleRequest, context: Context) -> pb.GetRuleResponse:  # noqa: N802
        async with self.vault(context) as vault:
            receipt = await vault.rules.get(request.name)
        return convert.fill_receipt(pb.GetRuleResponse(), receipt)

    async def UpdateRule(self, request: pb.UpdateRuleRequest, context: Context) -> pb.UpdateRuleResponse:  # noqa: N802
        checks.check_rule(request)
        async with self.vault(context) as vault:
            receipt = await vault.rules.update(
                convert.rule_from_pb(request.rule),
                mask=[convert.field_from_pb(path) for path in request.update_mask.paths],
                expected_revision=request.expected_revision if request.HasField("expected_revision") else None,
                request_id=request.request_id,
            )
        return convert.fill_receipt(pb.UpdateRuleResponse(), receipt)

    async def DeleteRule(self, request: pb.DeleteRuleRequest, context: Context) -> pb.DeleteRuleResponse:  # noqa: N802
        async with self.vault(context) as vault:
            deleted = await vault.rules.delete(
                request.name,
                force=request.force,
                allow_missing=request.allow_missing,
                expected_revision=request.expected_revision if request.HasField("expected_revision") else None,
                request_id=request.request_id,
            )
        return convert.deleted_to_pb(deleted)

    async def ListRules(self, request: pb.ListRulesRequest, context: Context) -> pb.ListRulesResponse:  # noqa: N802
        checks.check_list_rules(request)
        async with self.vault(context) as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.rules.list(
                convert.RULE_ORDERS[request.order],
                after=pages.position(),
                limit=page_size(request.page_size),
            )
        return convert.page_to_pb(page, pages.next(page.next_position))

    async def FindMatchingRule(  # noqa: N802
        self, request: pb.FindMatchingRuleRequest, context: Context
    ) -> pb.FindMatchingRuleResponse:
        checks.check_find_matching_rule(request)
        async with self.vault(context) as vault:
            rule = await vault.rules.find_matching(statement_from_pb(request.candidate))
        response = pb.FindMatchingRuleResponse()
        convert.fill_resolved(response.rule, rule)
        return response

    async def ResolveRule(  # noqa: N802
        self, request: pb.ResolveRuleRequest, context: Context
    ) -> pb.ResolveRuleResponse:
        async with self.vault(context) as vault:
            rule = await vault.rules.resolve(request.name)
        return convert.resolved_to_pb(rule)

    async def ExportRules(  # noqa: N802
        self, request: pb.ExportRulesRequest, context: Context
    ) -> pb.ExportRulesResponse:
        async with self.vault(context) as vault:
            rules, version = await vault.rules.export()
        return convert.export_to_pb(rules, version)

    async def LoadRules(self, request: pb.LoadRulesRequest, context: Context) -> pb.LoadRulesResponse:  # noqa: N802
        checks.check_load_rules(request)
        async with self.vault(context) as vault:
            loaded = await vault.rules.load(
                [convert.rule_from_pb(rule) for rule in request.rules],
                replace_all=request.replace_all,
                lenient=request.lenient,
                request_id=request.request_id,
            )
        return convert.loaded_to_pb(loaded)

    async def ResetRules(self, request: pb.ResetRulesRequest, context: Context) -> pb.ResetRulesResponse:  # noqa: N802
        async with self.vault(context) as vault:
            version = await vault.rules.reset(request_id=request.request_id)
        return pb.ResetRulesResponse(registry_version=version)
