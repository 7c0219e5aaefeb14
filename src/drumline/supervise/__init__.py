"""WHO KEEPS IT GOING: one supervisor per run, whatever the engine, and how to reach it."""
