"""Reads and writes messages of protocol buffers that are stored in files: published ones, and SentencePiece models. Only
this package and transport import the stubs.
"""
