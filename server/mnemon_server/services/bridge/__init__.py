"""The bridge: statements out of the events of a timeline."""
