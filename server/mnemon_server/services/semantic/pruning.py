"""Reasons why searches no longer find a statement, as the change feed names them."""

import json

SUPERSEDED, MERGED, UNMERGED = "superseded", "merged", "unmerged"
"""Why a statement was pruned."""


def prune_details(reason: str) -> str:
    """The details of the change for a pruned statement."""
    return json.dumps({"prune_reason": reason})
