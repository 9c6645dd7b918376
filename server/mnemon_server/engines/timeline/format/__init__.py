"""The bytes of a segment, as its README describes them."""
