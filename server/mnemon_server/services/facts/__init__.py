"""Facts, by namespace and key."""
