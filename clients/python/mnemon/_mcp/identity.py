"""Whose memory an MCP server shows. The person who starts it decides that, not the model."""

from collections.abc import Mapping
from dataclasses import dataclass

from mnemon._values.access import Identity as Caller
from mnemon.shared.errors import ConfigurationError
from mnemon.shared.namespaces import (
    LABEL_RULE,
    default_labels,
    is_label,
    namespace_text,
    template_keys,
    template_labels,
)

_OPTIONS = {"org_id": "--org", "user_id": "--user", "agent_id": "--agent"}


@dataclass(frozen=True, slots=True)
class Identity:
    """The namespace and the values for it; without both, the server's own setting applies."""

    namespace: tuple[str, ...] = ()
    org: str = ""
    user: str = ""
    agent: str = ""
    actions: tuple[str, ...] = ()
    """The permitted actions of manage_memory; empty means all that the server permits."""
    shared_knowledge: bool = False
    """Whether to search the documents of all users, and not only the user's."""
    time_zone: str = ""
    """That of days and times; empty means UTC."""

    @property
    def config(self) -> Mapping[str, str]:
        """The values for the namespace."""
        given = {"org_id": self.org, "user_id": self.user, "agent_id": self.agent}
        return {key: value for key, value in given.items() if value}

    def check(self) -> None:
        """Raises ConfigurationError if no memory could be stored. Otherwise only the model would notice."""
        labels = template_labels(self.namespace or None)
        for key in template_keys(labels):
            self._check_key(key, is_needed=bool(labels))

    def _check_key(self, key: str, *, is_needed: bool) -> None:
        option, value = _OPTIONS.get(key), self.config.get(key)
        if option is None:
            fillable = ", ".join(f"{{{name}}}" for name in _OPTIONS)
            raise ConfigurationError(
                f"--namespace has {{{key}}}, which nothing fills; what can be filled is {fillable}"
            )
        if value is None and is_needed:
            raise ConfigurationError(f"--namespace has {{{key}}}: give {option}, too")
        if value is not None and not is_label(value):
            raise ConfigurationError(
                f"{option} {LABEL_RULE}, since it is a label of the namespace; --namespace can name another"
            )

    @property
    def facts(self) -> tuple[str, ...]:
        """The namespace of the memory tools, as the server fills it; empty if its own setting decides."""
        if self.namespace:
            filled = {f"{{{key}}}": value for key, value in self.config.items()}
            return tuple(filled.get(label, label) for label in self.namespace)
        return default_labels(self.config)

    def limits_for(self, caller: Caller) -> tuple[str, tuple[str, ...]]:
        """The user and the namespace to which a search of the caller is limited; empty if it is not.

        Those to which the caller is bound anyway are left out: a search that names a user or a namespace does not find
        what others share with the caller.
        """
        user = "" if caller.users == (self.user,) else self.user
        facts = () if caller.namespaces == (namespace_text(self.facts),) else self.facts
        return user, facts
