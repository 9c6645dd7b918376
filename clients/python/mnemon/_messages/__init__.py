"""Values to messages and back, one module per noun."""
