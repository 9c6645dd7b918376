"""Mnemon's Python client: one server that remembers for AI agents."""

import sys
from typing import TYPE_CHECKING, Any

from mnemon.shared.version import __version__ as __version__

if TYPE_CHECKING:
    from mnemon._facade import *  # noqa: F403
    from mnemon.shared.errors import *  # noqa: F403

    __all__: list[str]
else:

    def __getattr__(name: str) -> Any:
        """Imports all public names when one is first used: a server uses only `mnemon.v1`, and starts sooner."""
        if name == "__all__" or not name.startswith("_"):
            from mnemon import _facade
            from mnemon.shared import errors

            classes = {each: value for each, value in vars(errors).items() if isinstance(value, type)}
            public = {each: value for each, value in classes.items() if value.__module__ == errors.__name__}
            public |= {each: value for each, value in vars(_facade).items() if not each.startswith("_")}
            public["__all__"] = sorted(public)
            globals().update(public)
            if name in public:
                return public[name]
        raise AttributeError(f"module 'mnemon' has no attribute {name!r}", name=name, obj=sys.modules[__name__])

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
