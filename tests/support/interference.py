"""How many random histories the tests of non-interference compare."""

import os

EXAMPLES = int(os.environ.get("MNEMON_INTERFERENCE_EXAMPLES", "0"))
"""For each of them; 0: as many as `make test` has time for."""
