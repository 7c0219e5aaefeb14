"""What runs on another machine before anything of drumline is there: the standard library and `beneath` only."""
