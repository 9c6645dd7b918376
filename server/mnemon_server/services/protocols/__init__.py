"""Reading the calls of tools that a language model wrote into its text: ABP, and VCP where ABP gives none."""
