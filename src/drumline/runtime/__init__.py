"""What runs beside or inside a training process: standard library only, and nothing else of drumline."""
