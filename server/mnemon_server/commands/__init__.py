"""What the commands of `mnemon-server` do."""
