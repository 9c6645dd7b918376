"""Words and their weights, and how rankings become one: shared by all engines."""
