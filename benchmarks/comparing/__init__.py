"""What `quality.py` is made of: corpora, systems, cells (one system on one corpus with one seed), goals, the page."""
