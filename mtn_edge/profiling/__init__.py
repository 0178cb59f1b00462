"""What a bundle costs: latency and memory, as table, JSON and a page."""
