"""Events in over HTTP: reads, checks and verifies them, and hands them to Temporal, each once."""
