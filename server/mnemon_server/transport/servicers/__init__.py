"""One servicer per service: read, call, write."""
