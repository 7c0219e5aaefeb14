"""Benchmarks: drumline and its peers measured in one run, as ratios. `make bench` runs them all."""
