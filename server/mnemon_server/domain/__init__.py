"""The domain: values and errors of the product. It imports no other package of the project."""
