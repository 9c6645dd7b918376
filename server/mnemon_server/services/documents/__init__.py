"""Documents: their store, their search, and the doors for programs."""
