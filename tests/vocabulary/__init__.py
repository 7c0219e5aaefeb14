"""The words that DESIGN.md retired: where they occur in texts, and where in names."""
