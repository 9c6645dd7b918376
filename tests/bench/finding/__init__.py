"""What searches find, on every set, beside plain ones: the sets, the searches, and the table."""
