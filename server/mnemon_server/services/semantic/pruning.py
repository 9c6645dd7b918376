"""Why statements leave the searches, as the events about it say."""

import json

SUPERSEDED, MERGED, UNMERGED = "superseded", "merged", "unmerged"
"""Why a statement was pruned."""


def prune_details(reason: str) -> str:
    """What the event of a pruned statement says."""
    return json.dumps({"prune_reason": reason})
