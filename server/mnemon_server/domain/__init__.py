"""Values and errors of the product. Imports nothing of ours."""
