"""What engines promise to the services: the contract that `tests/contract` holds every engine to.

Two kinds. A `Vault` keeps the truth: collections of documents, each a `RecordEngine`, the timeline of episodic events,
and the log of what happened to them. A `VectorIndex` is a cache of it: derived, disposable, rebuilt from the records
whenever it is lost, damaged or behind.
"""
