"""From a teacher to the smallest bundle that keeps within its budgets: stages, search, report (docs/compression.md)."""
