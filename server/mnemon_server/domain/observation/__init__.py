"""What the parts of a server tell about their work: figures, and the parts of traced calls."""
