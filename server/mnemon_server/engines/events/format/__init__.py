"""The file format of a segment, which the README in this folder describes."""
