"""The interfaces that docs/stability.md promises, read from the code and compared with docs/interfaces.txt."""
