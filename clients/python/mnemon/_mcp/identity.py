"""Whose memory an MCP server shows: what the person who starts it says, and a model may not choose."""

from collections.abc import Mapping
from dataclasses import dataclass

from mnemon._values import Scope


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

    @property
    def documents(self) -> Scope | None:
        """Whose documents are searched; None: everybody's."""
        return Scope(user=self.user) if self.user and not self.shared_knowledge else None
