"""The store: the records of runs on this machine, per user."""
