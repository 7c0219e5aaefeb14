"""Measured side by side, as ratios in one run; nothing here is run by tests."""
