"""Models for lessons and tests: scripted, recorded, and the offline demonstration."""
