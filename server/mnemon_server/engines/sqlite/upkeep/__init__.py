"""What is done to a records.db besides serving from it: verifying it, and changing its vectors."""
