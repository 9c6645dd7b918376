"""What keeps the files of a timeline: writing, sealing, compacting, checking, repairing."""
