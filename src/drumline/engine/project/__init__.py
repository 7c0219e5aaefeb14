"""The project's folder as engines send it: its files, their order and their bytes."""
