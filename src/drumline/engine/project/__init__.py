"""The project's folder as engines send it: which files belong to it, in which order, as which bytes."""
