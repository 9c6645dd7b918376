"""Background: periodic work, threads beside the event loop, and the signals that it is well."""
