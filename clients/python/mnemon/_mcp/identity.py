"""Whose memory an MCP server shows: what the person who starts it says, and a model may not choose."""

from collections.abc import Mapping
from dataclasses import dataclass

from mnemon._errors import ConfigurationError
from mnemon._namespaces import LABEL_BYTES_MAX, is_label, template_keys, template_labels
from mnemon._values.documents import Scope

_OPTIONS = {"org_id": "--org", "user_id": "--user", "agent_id": "--agent"}


@dataclass(frozen=True, slots=True)
class Identity:
    """The namespace and what fills it; without either, the server's own setting counts."""

    namespace: tuple[str, ...] = ()
    org: str = ""
    user: str = ""
    agent: str = ""
    actions: tuple[str, ...] = ()
    """What manage_memory may do; empty: all that the server permits."""
    shared_knowledge: bool = False
    """Whether documents of everybody are searched, and not the user's alone."""

    @property
    def config(self) -> Mapping[str, str]:
        """What fills the namespace."""
        given = {"org_id": self.org, "user_id": self.user, "agent_id": self.agent}
        return {key: value for key, value in given.items() if value}

    def check(self) -> None:
        """Raises ConfigurationError if no memory could be kept: of the calls that fail only the model is told."""
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
            rule = f'must be 1 to {LABEL_BYTES_MAX} bytes without ".", since it is a label of the namespace'
            raise ConfigurationError(f"{option} {rule}; --namespace can name another")

    @property
    def documents(self) -> Scope | None:
        """Whose documents are searched; None: everybody's."""
        return Scope(user=self.user) if self.user and not self.shared_knowledge else None
