"""The keyword index of a collection's passages, and that of the timeline's events."""
