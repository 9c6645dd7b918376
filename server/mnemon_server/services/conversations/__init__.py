"""Conversations: messages, which are events of the timeline, and what to read before an answer."""
