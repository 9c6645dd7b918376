"""Where bytes go: plain blocking Python behind the promises of `promises/`."""
