"""The data that commands show, as plain values: without layout, colour, or access to an engine."""
