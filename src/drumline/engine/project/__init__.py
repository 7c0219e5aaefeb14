"""A project's folder as every engine carries it: what belongs to it, in which order, as which bytes."""
