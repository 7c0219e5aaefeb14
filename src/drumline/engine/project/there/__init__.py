"""What runs on another machine before anything of drumline is there: each file by itself, standard library only."""
