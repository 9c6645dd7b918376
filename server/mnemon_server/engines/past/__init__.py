"""Collections as they were at a moment in the past.

What has not changed since is read where it is stored; what has, from the versions that held at that moment. All that
reads records works on such a collection as on any other.
"""

from mnemon_server.engines.past.records import PastRecords as PastRecords
