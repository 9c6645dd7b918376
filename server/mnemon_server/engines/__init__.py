"""Storage: plain blocking Python behind the contracts in `promises/`."""
