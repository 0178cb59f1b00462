"""Triton model repositories: what a fleet of servers loads (docs/serving.md)."""
