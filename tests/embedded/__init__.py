"""The embedded stack, always with real servers and real processes."""
