"""One servicer per service: check, convert, call, convert."""
