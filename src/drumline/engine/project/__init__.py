"""The project's folder as engines send it: which files, in which order, with which bytes."""
