"""Self-contained HTML pages: one look, plots inline, nothing fetched from anywhere."""
