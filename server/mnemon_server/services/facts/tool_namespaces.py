"""Whose records a call of a memory tool concerns. The application decides that in the context, not the model."""

from collections.abc import Mapping, Sequence
from copy import copy

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.namespaces import Namespace, NamespaceTemplate, configured_label, namespace_resolver
from mnemon_server.domain.records import Scope
from mnemon_server.domain.tools import ToolContext

_DEFAULT_KEYS = frozenset(("org_id", "user_id", "agent_id"))
_NO_USER = (
    "only facts can be searched: records of other kinds belong to users, and the configuration {problem}; "
    "leave `kinds` out"
)


class ToolNamespaces:
    """The namespace of a call's facts, and the scope of its other records."""

    def __init__(self, template: Sequence[str] = ()) -> None:
        """The template is for calls whose context has none; if empty, `default_namespace` is used.

        Raises ConfigurationError if it is not valid.
        """
        self._template = NamespaceTemplate(tuple(template)) if template else None
        self._bounds = UNBOUNDED

    def over(self, bounds: Bounds) -> "ToolNamespaces":
        """The same for callers with bounds: a call whose context says nothing about a namespace has their own, if that
        is a single one.
        """
        part = copy(self)
        part._bounds = bounds
        return part

    def of(self, context: ToolContext) -> Namespace:
        """The namespace of a call in this context. Raises ConfigurationError if the context does not give it."""
        if self._own is not None and not self._gives_namespace(context):
            return self._own
        return namespace_resolver(tuple(context.namespace) or self._template)(context.config)

    def if_given(self, context: ToolContext) -> tuple[str, ...]:
        """The same for a tool that does not need one: () if the context says nothing about it."""
        return self.of(context) if self._own is not None or self._gives_namespace(context) else ()

    def of_scope(self, scope: Scope) -> Namespace:
        """The caller's own namespace, or the one that a configuration with the user and agent of a scope gives.

        Raises ConfigurationError if they do not give one.
        """
        if self._own is not None:
            return self._own
        given = {"user_id": scope.user, "agent_id": scope.agent}
        return self.of(ToolContext(config={key: value for key, value in given.items() if value}))

    def scope_of(self, context: ToolContext) -> Scope:
        """The user and the agent of a call, to whom its records other than facts belong.

        Raises ConfigurationError if it names no user and the caller's bounds do not, either, or if it names an
        organisation, of which scopes know nothing.
        """
        org, user, agent = (configured_label(context.config, key) for key in ("org_id", "user_id", "agent_id"))
        if org is not None:
            raise ConfigurationError(_NO_USER.format(problem="names an organisation"))
        if user is None and self._bounds.users is None:
            raise ConfigurationError(_NO_USER.format(problem="names no 'user_id'"))
        return Scope(user=user or "", agent=agent or "")

    @property
    def _own(self) -> Namespace | None:
        own = self._bounds.namespaces
        return own[0] if own is not None and len(own) == 1 else None

    def _gives_namespace(self, context: ToolContext) -> bool:
        inner = context.config.get("configurable")
        keys = {*context.config, *(inner if isinstance(inner, Mapping) else ())}
        filled_by = _DEFAULT_KEYS if self._template is None else set(self._template.keys)
        return bool(context.namespace or not filled_by or keys & filled_by)
