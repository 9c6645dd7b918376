"""The published messages that files on disk hold; with transport, all that knows the stubs."""
