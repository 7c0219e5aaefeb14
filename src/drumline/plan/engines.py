"""The engines by name."""

ON_CLUSTERS = ("kubernetes", "jobset", "tfjob")
ENGINES = ("local", "ssh", *ON_CLUSTERS)  # that are offered; nobody trains on `fake`
