"""One supervisor per run, on any engine, and how commands reach it."""
