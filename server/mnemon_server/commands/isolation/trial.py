"""Plants records in tenants of a running server, and tries to reach them from everywhere else."""

import difflib
import json
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import grpc
from google.protobuf.descriptor import MethodDescriptor
from mnemon.v1 import access_pb2 as pb

from mnemon_server.commands.isolation.calls import METHODS, Answer, call, filled, opened
from mnemon_server.commands.isolation.probes import OWN, PLANTED, PROBES, READS, TOKENS, Json, Probe
from mnemon_server.domain.errors import InvalidOperationError

REVOKED_S = 5.0
"""How soon the open streams of a revoked key end."""
STEPS = len(PROBES) * 4 + len(READS) * 4 + len(METHODS) * 8
"""Calls for each victim, about."""
_ROLES = (pb.ROLE_READER, pb.ROLE_WRITER, pb.ROLE_ADMIN)
_NOT_TRIED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED")

Names = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller."""

    title: str
    key: str
    """The API key."""
    own: Names
    """The names of its records."""

    def aiming_at(self, others: Names) -> Names:
        """The values for the placeholders of a probe: names of others, and its own."""
        return {**{f"own_{name}": value for name, value in self.own.items()}, **others}


@dataclass(slots=True)
class Report:
    """The trials and their findings."""

    tried: dict[str, int] = field(default_factory=dict)
    """How often each thing was checked."""
    failures: list[dict[str, str]] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)
    """Methods that no request could be made for."""

    @property
    def holds(self) -> bool:
        """Whether every method was tried, and nothing was reached."""
        return not self.failures and not self.untried

    def check(self, what: str, method: str, caller: Caller, found: Callable[[], str], *, holds: bool) -> None:
        """Counts a check, and notes it if it does not hold."""
        self.tried[what] = self.tried.get(what, 0) + 1
        if not holds:
            self.failures.append({"check": what, "method": method, "caller": caller.title, "found": found()})


class Trial:
    """One run against a server. Its tenants are deleted when the block ends."""

    def __init__(self, channel: grpc.Channel, operator: str, report: Report, advance: Callable[[], None]) -> None:
        """Calls nothing yet. `operator` is the API key of one; `advance` is called after each call."""
        self._channel = channel
        self._operator = operator
        self._report = report
        self._advance = advance
        self._run = secrets.token_hex(4)
        self._now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._tenants: list[str] = []
        report.untried = sorted(METHODS.keys() - {probe.method for probe in (*PROBES, *PLANTED)})

    def __enter__(self) -> "Trial":
        role = self._ask(self._operator, "AccessService/WhoAmI", {}).get("role")
        if role != "ROLE_OPERATOR":
            raise InvalidOperationError(
                f"verify-isolation makes tenants and needs the key of an operator, not of {role}"
            )
        return self

    def __exit__(self, *_: object) -> None:
        for tenant in self._tenants:
            self._suspend(tenant)
            call(
                self._channel, "TenantService/DeleteTenant", [{"tenant": tenant, "allowMissing": True}], self._operator
            )

    def run(self, number: int) -> None:
        """Tries everything against one more tenant.

        Raises:
            InvalidOperationError: the server does not do what the trial needs.
        """
        victim, raider, twin = (self._admin(f"{title}-{number}") for title in ("victim", "raider", "twin"))
        target = self._planted(victim)
        self._raid(victim, target, raider, twin)
        self._raid_within(victim, target)
        self._try_credentials(victim)
        self._revoke(victim)
        self._suspend(victim.own["tenant"])
        for method in METHODS:
            self._refused("suspended", method, victim, "PERMISSION_DENIED")

    # Tenants and their records

    def _admin(self, title: str) -> Caller:
        """The admin of a new tenant."""
        tenant = f"isolation-{self._run}-{title}"
        self._ask(self._operator, "TenantService/CreateTenant", {"tenant": tenant, "displayName": "verify-isolation"})
        self._tenants.append(tenant)
        made = self._key(tenant, "ROLE_ADMIN")
        return Caller(
            f"admin of {tenant}", made["secret"], {**self._names(), "tenant": tenant, "key": made["key"]["keyId"]}
        )

    def _key(self, tenant: str, role: str, **bounds: Sequence[str]) -> Json:
        return self._ask(
            self._operator,
            "AccessService/CreateKey",
            {"name": f"verify-isolation {self._run}", "role": role, "tenant": tenant, **bounds},
        )

    def _bound(self, tenant: str, title: str, names: Names) -> Caller:
        """A writer of a tenant who is bound to one user, and to the namespace below one label."""
        made = self._key(tenant, "ROLE_WRITER", users=[names["user"]], namespaces=[names["label"]])
        return Caller(f"{title} of {tenant}", made["secret"], {**names, "tenant": tenant, "key": made["key"]["keyId"]})

    def _planted(self, victim: Caller) -> Names:
        """Stores the victim's records; returns their names, and the tokens of pages that only the victim has read."""
        names = self._store(victim, PLANTED, victim.own)
        cursor = self._ask(victim.key, "ChangeService/ListChanges", {})["cursor"]
        return {**names, "memory_page": self._page(victim), "change_cursor": cursor}

    def _page(self, caller: Caller) -> str:
        """The token of the caller's second page of memories."""
        token: str = self._ask(caller.key, "MemoryService/ListMemories", {"pageSize": 1})["nextPageToken"]
        return token

    def _store(self, caller: Caller, records: Sequence[Probe], names: Names) -> Names:
        """Stores records; returns the names, with the ids that the server chose."""
        for each in records:
            answer = self._probe(caller, each, names)
            if answer.code not in ("OK", "PERMISSION_DENIED"):
                raise InvalidOperationError(f"{each.method} of the {caller.title}: {answer.code} {answer.text}")
            if answer.is_ok:
                names = {**names, **each.kept(answer.messages[0])}
        return names

    def _suspend(self, tenant: str) -> None:
        changed = {"tenant": {"tenant": tenant, "suspension": {"reason": "the trial has ended"}}}
        call(self._channel, "TenantService/UpdateTenant", [{**changed, "updateMask": "suspension"}], self._operator)

    def _names(self) -> dict[str, str]:
        """Names that nobody has."""
        ids = {
            name: str(uuid.uuid4()) for name in ("memory", "later", "event", "statement", "merged", "second", "grant")
        }
        words = ("document", "last", "fact", "conversation", "rule", "request", "label", "user", "secret")
        return {**ids, **{name: f"{name}{secrets.token_hex(5)}" for name in words}, "now": self._now}

    # Attempts

    def _raid(self, victim: Caller, target: Names, raider: Caller, twin: Caller, *, within: bool = False) -> None:
        """The raider names the victim's records, its twin names that nobody has: both must be told the same."""
        for each in (raider, twin):
            self._store(each, OWN, each.aiming_at(each.own))
        before = self._reads(victim, target)
        for probe, answer in zip(READS, before, strict=True):
            if answer.code not in ("OK", "PERMISSION_DENIED"):
                raise InvalidOperationError(f"{probe.method} of the {victim.title}: {answer.code} {answer.text}")
        nothing = {**self._names(), "tenant": f"isolation-{self._run}-none", "key": secrets.token_hex(8)}
        nothing |= {token: _invented_token(target[token]) for token in TOKENS}
        if within:
            # The rules of the tenant decide about everybody's statements, and decisions name them.
            nothing["rule"] = target["rule"]
        for probe in PROBES:
            if within and probe.shares:
                continue
            aims = raider.aiming_at(target), twin.aiming_at(nothing)
            answer, expected = self._probe(raider, probe, aims[0]), self._probe(twin, probe, aims[1])
            if expected.code in _NOT_TRIED or (expected.code == "INVALID_ARGUMENT" and not probe.forges):
                raise InvalidOperationError(f"{probe.method} could not be tried: {expected.code} {expected.text}")
            told = answer.says(target["secret"])
            self._report.check("nothing of others is told", probe.method, raider, lambda: "a canary", holds=not told)
            like = answer.likened(aims[0]), expected.likened(aims[1])
            self._compare("what others have is as if missing", probe, raider, *like)
        after = self._reads(victim, target)
        for probe, was, now in zip(READS, before, after, strict=True):
            self._compare("others change nothing", probe, victim, now, was)

    def _compare(self, what: str, probe: Probe, caller: Caller, answer: Answer, expected: Answer) -> None:
        self._report.check(what, probe.method, caller, lambda: difference(expected, answer), holds=answer == expected)

    def _raid_within(self, victim: Caller, target: Names) -> None:
        """The same between users of one tenant, whose keys are bound to them."""
        tenant = victim.own["tenant"]
        user = self._bound(tenant, "a user", victim.own)
        raider, twin = (self._bound(tenant, title, self._names()) for title in ("another user", "a third user"))
        self._raid(user, {**target, "memory_page": self._page(user)}, raider, twin, within=True)

    def _reads(self, victim: Caller, target: Names) -> list[Answer]:
        """All that the victim is told."""
        return [self._probe(victim, probe, target).likened({}) for probe in READS]

    def _try_credentials(self, victim: Caller) -> None:
        """Every method, with every credential that does not suffice."""
        tenant = victim.own["tenant"]
        revoked = self._key(tenant, "ROLE_ADMIN")
        self._ask(self._operator, "AccessService/RevokeKey", {"keyId": revoked["key"]["keyId"], "tenant": tenant})
        callers = {
            role: Caller(
                f"{pb.Role.Name(role)[5:].lower()} of {tenant}", self._key(tenant, pb.Role.Name(role))["secret"], {}
            )
            for role in _ROLES
        }
        bound = self._bound(tenant, "a bound writer", self._names())
        for name, method in METHODS.items():
            for title, key in (
                ("nobody", ""),
                ("a wrong key", victim.key[:-6] + "AAAAAA"),
                ("a revoked key", revoked["secret"]),
            ):
                self._refused("no valid credential", name, Caller(title, key, {}), "UNAUTHENTICATED")
            for role, caller in callers.items():
                if not _allows(method, role):
                    self._refused("lesser role", name, caller, "PERMISSION_DENIED")
            if not _allows(method, pb.ROLE_OPERATOR):
                self._refused("operator", name, Caller("an operator", self._operator, {}), "PERMISSION_DENIED")
            if method.GetOptions().Extensions[pb.reach] == pb.REACH_TENANT:
                self._refused("whole tenant", name, bound, "PERMISSION_DENIED")

    def _refused(self, what: str, method: str, caller: Caller, code: str) -> None:
        """The call must end with this code, without its request."""
        answer = call(self._channel, method, [], caller.key)
        self._advance()
        self._report.check(f"refused: {what}", method, caller, lambda: answer.code, holds=answer.code == code)

    def _revoke(self, victim: Caller) -> None:
        """The open stream of a key that is revoked must end."""
        tenant = victim.own["tenant"]
        made = self._key(tenant, "ROLE_READER")
        watch, method = Caller("a watcher whose key is revoked", made["secret"], {}), "ChangeService/WatchChanges"
        with opened(self._channel, method, {}, watch.key) as stream:
            next(stream)
            self._ask(self._operator, "AccessService/RevokeKey", {"keyId": made["key"]["keyId"], "tenant": tenant})
            code = stream.end_within(REVOKED_S)
        self._report.check("a revoked key's streams end", method, watch, lambda: code, holds=code == "UNAUTHENTICATED")

    # Calls

    def _probe(self, caller: Caller, probe: Probe, names: Names) -> Answer:
        self._advance()
        until = filled(probe.until, names) if probe.until else ""
        return call(self._channel, probe.method, filled(probe.messages, names), caller.key, until=until)

    def _ask(self, key: str, method: str, request: Json) -> Json:
        """The answer to a call that must succeed."""
        answer = call(self._channel, method, [request], key)
        if not answer.is_ok:
            raise InvalidOperationError(f"{method} failed: {answer.code} {answer.text}")
        found: Json = answer.messages[0]
        return found


def difference(one: Answer, other: Answer) -> str:
    """The lines in which two answers differ."""
    before, after = (json.dumps([each.code, each.text, each.messages], indent=1).splitlines() for each in (one, other))
    return "\n".join([*difflib.unified_diff(before, after, lineterm="", n=1)][2:])[:1_000]


def _invented_token(token: str) -> str:
    """A token of the same form that no server has made."""
    return token[:-6] + "".join("B" if each == "A" else "A" for each in token[-6:])


def _allows(method: MethodDescriptor, role: int) -> bool:
    """Whether the API says that a role may call a method. Not asked of the server's own code, which is on trial."""
    options = method.GetOptions().Extensions
    required = options[pb.required_role]
    if role == pb.ROLE_OPERATOR:
        return bool(options[pb.open_to_operators]) or required == pb.ROLE_OPERATOR
    return bool(required <= role)
