"""Where a Chroma collection is, and how long to wait for it."""

from dataclasses import dataclass
from pathlib import Path

from mnemon_server.domain.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChromaSettings:
    """Raises ConfigurationError unless exactly one of `path` and `host` is given."""

    path: Path | None = None
    """Folder of an embedded Chroma, created if missing. Only one index may use it."""
    host: str = ""
    """Address of a Chroma server; with `port` and `ssl`."""
    port: int = 8000
    ssl: bool = False
    call_timeout_s: float = 60.0
    """Maximum time for one request, after which the child is killed."""
    search_timeout_s: float = 1.0
    """Maximum time for a search on a server, after which the records answer it."""
    open_timeout_s: float = 120.0
    """Maximum time for opening, after which an embedded index counts as damaged."""
    lock_wait_s: float = 10.0
    """How long to wait for a previous owner of the folder."""

    def __post_init__(self) -> None:
        if (self.path is None) == (not self.host):
            raise ConfigurationError("a Chroma index needs either a path (embedded) or a host (a server), not both")
