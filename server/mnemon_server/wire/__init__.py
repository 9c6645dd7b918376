"""Converts published messages that are also stored in files. Only this package and transport import the stubs."""
