"""The timeline's storage: segment files that hold events as checksummed frames, so that damage is detected."""
