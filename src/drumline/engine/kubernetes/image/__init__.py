"""Images that are built for a run: named by their content, built on this machine, pushed where a registry is named."""
