"""How the key-press benchmark measures: its inputs, the race, the machine's limits, loading and threads, the page."""
