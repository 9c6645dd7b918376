"""Reads the tool calls that a language model wrote into its text: in ABP, or in VCP if there is no ABP call."""
