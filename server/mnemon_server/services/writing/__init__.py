"""Writing: batches and their order, request keys, field masks, ids, the names of what was erased, and back pressure."""
