"""The command `mnemon-server verify-isolation`."""
