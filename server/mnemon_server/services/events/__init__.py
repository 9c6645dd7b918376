"""The timeline: events, their retention and their health."""
