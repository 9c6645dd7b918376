"""How many random histories the tests of non-interference compare, and which."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import seed, settings

EXAMPLES = int(os.environ.get("MNEMON_INTERFERENCE_EXAMPLES", "0"))
"""For each of them; 0: as many as `make test` has time for."""
SEED = int(os.environ.get("MNEMON_INTERFERENCE_SEED", "0"))
"""Other histories; 0: those of `make test`."""


def histories(examples: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a test that hypothesis gives histories, `examples` of them if the environment does not say how many."""

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        chosen = settings(max_examples=EXAMPLES or examples, deadline=None, derandomize=True, database=None)(test)
        return seed(SEED)(chosen) if SEED else chosen

    return decorated
