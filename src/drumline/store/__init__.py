"""The store: what drumline records on this machine, per user."""
