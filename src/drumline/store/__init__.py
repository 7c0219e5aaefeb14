"""WHAT HAPPENED: what drumline keeps on this machine, per user."""
