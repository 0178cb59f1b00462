"""From a search log to a dataset: readers, cleaning, sessions, privacy, splits, simulated logs."""
