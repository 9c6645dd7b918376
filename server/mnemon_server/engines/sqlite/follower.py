"""State in memory that follows the transactions of records.db."""

import apsw


class Follower:
    """Holds state in memory that follows the database's transactions. It is called on the writer's thread, and
    overrides what it needs.
    """

    is_touched = True
    """Whether the transaction concerns it. A follower that sets this itself is passed over while it is False."""

    def load(self, connection: apsw.Connection) -> None:
        """Loads the state after the file was opened or reopened."""

    def before_commit(self, connection: apsw.Connection) -> None:
        """Called at the end of the transaction, before its commit."""

    def after_commit(self) -> None:
        """Called once the transaction is on stable storage."""

    def after_rollback(self) -> None:
        """Called after the transaction was rolled back."""
