"""The files of all-MiniLM-L6-v2 as the Mnemon server runs it: an ONNX graph, its SHA-256, and the tokenizer."""

# The first number is that of the builder which made the graph.
__version__ = "3.0.0"
