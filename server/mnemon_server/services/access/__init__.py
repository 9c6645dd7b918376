"""Who calls: API keys, and what their holders may do."""
