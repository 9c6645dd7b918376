"""The commands of `mnemon-server`."""
