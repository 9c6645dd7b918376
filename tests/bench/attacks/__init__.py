"""What a hostile caller costs everybody else: the attacks, the bystander beside them, and the table."""
