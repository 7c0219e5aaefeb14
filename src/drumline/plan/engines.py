"""The engines by name."""

# Options of these are alike; those of the first stand in where the other two have none of their own.
ON_CLUSTERS = ("kubernetes", "jobset", "tfjob")
ENGINES = ("local", "ssh", *ON_CLUSTERS)  # that are offered; nobody trains on `fake`
