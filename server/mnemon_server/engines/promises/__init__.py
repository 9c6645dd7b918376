"""The contracts between engines and services. `tests/contract` runs the same tests against every engine.

There are two kinds. A `Vault` holds the authoritative data: collections of documents, each a `RecordEngine`, the
timeline of episodic events, and the log of their changes. A `VectorIndex` is derived from the records. It can be
deleted at any time, and is rebuilt whenever it is lost, damaged or outdated.
"""
