"""Build images for runs: named by their content, built on this machine, pushed if the spec names a registry."""
