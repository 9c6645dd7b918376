"""What the mutation tests change, and which tests must notice."""

from collections.abc import Mapping, Sequence

_ACCESS, _BOUNDS = "tests/e2e/test_access.py", "tests/e2e/test_bounds.py"
_PLAIN_BOUNDS, _PLAIN_ACCESS = "tests/unit/domain/test_bounds.py", "tests/unit/domain/test_access.py"
_BOUND_VAULTS, _BOUND_TIMELINES = "tests/contract/test_bound_vaults.py", "tests/contract/test_bound_timelines.py"
_SHARED = "tests/contract/test_shared_records.py"
_BOUND_STATEMENTS = "tests/contract/test_bound_statements.py"
_BOUND_GUARD, _FOREIGN_SAVES = "tests/contract/test_bound_guard.py", "tests/e2e/test_foreign_saves.py"
_ROLES, _TENANCY = "tests/unit/transport/test_roles.py", "tests/unit/transport/test_tenancy.py"
_CHECKS, _IDENTITIES = "tests/unit/transport/test_access_checks.py", "tests/unit/services/test_identities.py"
_TENANT_UNITS, _VERIFICATION = "tests/unit/services/test_tenants.py", "tests/unit/services/test_tokens.py"
_TOKENS, _TENANTS = "tests/e2e/test_tokens.py", "tests/e2e/test_tenants.py"
_REVOCATION = "tests/e2e/test_revocation.py"
_KEYS, _KEY_SETS = "tests/unit/services/test_key_ring.py", "tests/unit/services/test_key_sets.py"
_CERTIFICATES, _CERTIFICATE_UNITS = "tests/e2e/test_certificates.py", "tests/unit/services/test_certificates.py"
_ISSUERS, _IDENTITY_FILE = "tests/unit/services/test_issuers.py", "tests/unit/services/test_identity_file.py"
_ACCOUNTS, _QUOTAS = "tests/unit/services/test_accounts.py", "tests/e2e/test_quotas.py"

_QUARANTINE, _HIDDEN = "tests/e2e/test_quarantine.py", "tests/e2e/test_quarantine_effects.py"
_QUARANTINE_COMMAND, _EXTRACTION = "tests/e2e/test_quarantine_command.py", "tests/e2e/test_extraction.py"
_FILTERS = "tests/unit/domain/test_change_filters.py"
_VAULTS, _FEEDS = "tests/contract/test_sqlite_records.py", "tests/e2e/test_bound_feeds.py"
_TOOL_IDENTITY, _TOOL_IDENTITIES = "tests/unit/services/tools/test_tool_identity.py", "tests/e2e/test_tool_identity.py"

TESTS: Mapping[str, Sequence[str]] = {
    "domain/access/bounds.py": (
        *(_PLAIN_BOUNDS, _SHARED, _QUARANTINE, _HIDDEN, _BOUND_VAULTS, _BOUNDS, _IDENTITY_FILE, _ACCESS, _TOKENS),
    ),
    "domain/access/__init__.py": (_PLAIN_ACCESS, _KEYS, _ACCESS, _TENANTS),
    "domain/access/shares.py": (_SHARED,),
    "domain/changes.py": (_FILTERS, _SHARED, _VAULTS, _FEEDS, _HIDDEN),
    "domain/access/tenants.py": (_PLAIN_ACCESS, _TENANTS),
    "engines/bound/guard.py": (_BOUND_GUARD, _SHARED, _FOREIGN_SAVES),
    "engines/bound/records.py": (_QUARANTINE, _HIDDEN, _BOUND_VAULTS, _SHARED, _BOUND_STATEMENTS, _BOUNDS),
    "engines/bound/events.py": (_QUARANTINE, _HIDDEN, _BOUND_TIMELINES, _SHARED, _BOUNDS),
    "engines/bound/transaction.py": (_HIDDEN, _BOUND_VAULTS, _SHARED, _BOUND_STATEMENTS, _BOUNDS),
    "engines/bound/vault.py": (_BOUND_VAULTS, _BOUND_STATEMENTS, _BOUNDS),
    "engines/bound/writing.py": (_BOUND_VAULTS, _BOUNDS),
    "assembly/vault.py": (_BOUND_VAULTS, _BOUNDS, _HIDDEN),
    "services/quarantine/store.py": (_HIDDEN, _QUARANTINE_COMMAND, _QUARANTINE, _EXTRACTION),
    "services/access/certificates.py": (_CERTIFICATE_UNITS, _CERTIFICATES),
    "services/access/identities.py": (_IDENTITIES, _ISSUERS, _ACCESS, _TOKENS, _TENANTS, _CERTIFICATES),
    "services/access/issuers.py": (_ISSUERS, _IDENTITY_FILE, _TOKENS),
    "services/access/key_sets.py": (_KEY_SETS, _TOKENS),
    "services/access/keys.py": (_KEYS, _ACCESS),
    "services/access/tenants.py": (_TENANT_UNITS, _TENANTS),
    "services/access/tokens.py": (_VERIFICATION, _TOKENS),
    "services/limits/accounts.py": (_ACCOUNTS, _QUOTAS),
    "services/tools/identity.py": (_TOOL_IDENTITY, _TOOL_IDENTITIES),
    "transport/interceptors/access.py": (_CHECKS, _REVOCATION, _ACCESS, _BOUNDS, _TENANTS, _CERTIFICATES, _TOKENS),
    "transport/roles.py": (_ROLES, _ACCESS),
    "transport/tenancy.py": (_TENANCY, _QUARANTINE, _TENANTS, _ACCESS, _BOUNDS),
}
"""The tests of each module below `mnemon_server`, the quickest first."""

_EMPTY, _MADE_ANEW, _MORE_OFTEN = "nothing is found, either way", "what is kept is made anew", "stored more often"
_KEPT, _LOGGED = "what is kept is the same", "what a callback raises is only logged"
_OWN_IDS = "ids of messages are made from their users"
_MORE_KEPT = "more are kept, all of them right"
_NO_RATE, _QUICKER = "without a rate, the remainder is never read", "only quicker"
_RACE = "the stream is cancelled twice at the same moment, or by the end of the server"

EQUIVALENT: Mapping[str, str] = {
    "engines/bound/records.py Boundary.admitted: doc_ids -> True": _EMPTY,
    "domain/access/bounds.py Bounds.restricted: not self.hidden or collection == RULES or (collection == DECISIONS and"
    " where.is_writing) -> collection == RULES or (collection == DECISIONS and where.is_writing)": _QUICKER,
    "engines/bound/records.py Boundary.related: is_whole and (not self._bounds.hidden) -> False": _QUICKER,
    "engines/bound/records.py Boundary.leaves_out_quarantine: bool(self._bounds.hidden) and (not self._bounds.is_bound)"
    " -> not self._bounds.is_bound": "only a quarantine makes a view for a caller that is not bound",
    "engines/bound/records.py Boundary.leaves_out_quarantine: bool(self._bounds.hidden) and (not self._bounds.is_bound)"
    " -> bool(self._bounds.hidden)": _KEPT,
    "engines/bound/records.py BoundRecords.list_documents: self._bounds.hidden -> True": _QUICKER,
    "engines/bound/records.py BoundRecords._as_shown: not self._bounds.hidden or not document.fields.get('versions')"
    " -> not self._bounds.hidden": _EMPTY,
    "engines/bound/records.py BoundRecords.distinct_texts: not self._bounds.hidden -> False": _QUICKER,
    "engines/bound/records.py BoundRecords.match_passages: where or not self._boundary.leaves_out_quarantine"
    " -> True": _QUICKER,
    "engines/bound/records.py BoundRecords.match_passages: where or not self._boundary.leaves_out_quarantine"
    " -> where": _KEPT,
    "engines/bound/records.py BoundRecords.stats: self._boundary.leaves_out_quarantine -> True": _KEPT,
    "engines/bound/records.py BoundRecords.stats: self._boundary.leaves_out_quarantine -> False": _QUICKER,
    "engines/bound/records.py BoundRecords._all_shown: self._shown is None or self._shown.stats.sequence !="
    " self._records.stats().sequence -> True": _MADE_ANEW,
    "engines/bound/events.py BoundEvents.get_stored: event and self._has_scope(event, scopes) -> True": _OWN_IDS,
    "engines/bound/events.py BoundEvents.get_stored: event and self._has_scope(event, scopes) -> event": _OWN_IDS,
    "engines/bound/events.py BoundEvents._is_in: bool(self._bounds.hidden) and self._bounds.hides(decode(event.body)"
    ".scope) -> self._bounds.hides(decode(event.body).scope)": _QUICKER,
    "engines/bound/transaction.py BoundRecordTransaction.get_documents: self._boundary.reads_origins -> True": _QUICKER,
    "services/quarantine/store.py QuarantineStore.shown: self.hidden -> True": _QUICKER,
    "services/quarantine/store.py QuarantineStore.shown_in: self.hidden -> True": _QUICKER,
    "services/quarantine/store.py QuarantineStore._note: not changed.cancelled() and changed.exception() is None"
    " -> True": _LOGGED,
    "services/quarantine/store.py QuarantineStore._note: not changed.cancelled() and changed.exception() is None"
    " -> changed.exception() is None": _LOGGED,
    "services/quarantine/store.py QuarantineStore._note: not changed.cancelled() and changed.exception() is None"
    " -> not changed.cancelled()": _LOGGED,
    "engines/bound/guard.py BoundGuard.refusals: refusal is None and writes[i].document.doc_id"
    " -> refusal is None": "no stored document has the empty id; leaving it out is only quicker",
    "engines/bound/guard.py BoundGuard.refusals: names -> True": _QUICKER,
    "engines/bound/vault.py BoundVault.collection: collection not in self._collections -> True": _MADE_ANEW,
    "assembly/vault.py views_of.within: bounds in views -> False": _MADE_ANEW,
    "assembly/vault.py views_of.within: len(views) > VIEWS_MAX -> True": _MADE_ANEW,
    "assembly/vault.py views_of.within: len(views) > VIEWS_MAX -> False": _MORE_KEPT,
    "services/access/identities.py Identities.remember: not self.recent -> True": "forgotten more often",
    "services/access/identities.py Identities.remember: len(self.recent) < RECENT_MAX -> True": _MORE_KEPT,
    "services/access/keys.py KeyRing.authenticate: opened is None or (opened.ends_at is not None and now >="
    " opened.ends_at) -> True": _MADE_ANEW,
    "services/access/keys.py KeyRing.authenticate: opened.ends_at is not None and now >= opened.ends_at"
    " -> opened.ends_at is not None": _MADE_ANEW,
    "services/access/keys.py KeyRing._open: key_id -> True": _EMPTY,
    "services/access/keys.py KeyRing._open: not is_secret_of(digest, stored.previous_digest) or until is None or now >="
    " until -> not is_secret_of(digest, stored.previous_digest) or now >= until": "without a time, no former digest",
    "services/access/tenants.py Tenants.quotas: tenant.quotas != UNLIMITED -> True": "none of its own are none",
    "services/access/tenants.py Tenants.delete: not marked and (await self.get(tenant)).deleted_at is None"
    " -> (await self.get(tenant)).deleted_at is None": "what was marked is deleted",
    "services/access/tenants.py Tenants._turn: self._store.may_have_changed() -> True": _QUICKER,
    "services/access/tenants.py Tenants._refresh: version != self._version -> True": _MADE_ANEW,
    "services/limits/accounts.py Bucket.spend: self._rate is not None -> True": _NO_RATE,
    "services/limits/accounts.py Account._limit: per_minute or 0 -> per_minute": _NO_RATE,
    "services/limits/accounts.py Account.begin: account._quotas is not UNLIMITED -> True": _QUICKER,
    "services/limits/accounts.py Accounts.of: self._tenants.get(tenant) or self.of_tenant(tenant)"
    " -> self.of_tenant(tenant)": _QUICKER,
    "services/limits/accounts.py Accounts.of_tenant: account is None -> True": "the account that there is stays",
    "services/access/keys.py KeyRing._turn: self._clock() - self._stored_at >= USES -> True": _MORE_OFTEN,
    "services/access/keys.py KeyRing._store_uses: time >= since -> True": _MORE_OFTEN,
    "services/access/keys.py KeyRing._store_uses: unstored -> True": _MORE_OFTEN,
    "transport/interceptors/access.py Access.of.admit: certificates and (not call.bearer)"
    " -> not call.bearer": "certificates that nothing reads; the comparison is only quicker",
    "transport/interceptors/access.py Access.of.admit: principal is None -> True": _QUICKER,
    "transport/interceptors/access.py Access.watched.stream: refusal is None or context.cancelled()"
    " -> refusal is None": _RACE,
    "transport/interceptors/access.py Access.watched.stream: refusal is None or context.cancelled()"
    " -> context.cancelled()": _RACE,
    "transport/interceptors/access.py Access.watched: self._identities is None or method.exempt or method.single"
    " -> self._identities is None or method.exempt": "single calls are watched like streams",
    "domain/changes.py ChangeFilter.matches: self.scope == change.scope or self._scope_matches(change.scope)"
    " -> self._scope_matches(change.scope)": "an equal scope also matches; the comparison is only quicker",
}
"""Mutants that no test can notice, by name, and why."""
