"""Mnemon's Python client: one server that remembers for AI agents."""

import sys
from typing import TYPE_CHECKING, Any

from mnemon._version import __version__ as __version__

if TYPE_CHECKING:
    from mnemon._facade import *  # noqa: F403
    from mnemon._facade import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """Imports all public names when one is first used: a server uses only `mnemon.v1`, and starts sooner."""
        if name == "__all__" or not name.startswith("_"):
            from mnemon import _facade

            public = {each: getattr(_facade, each) for each in ("__all__", *_facade.__all__)}
            globals().update(public)
            if name in public:
                return public[name]
        raise AttributeError(f"module 'mnemon' has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
