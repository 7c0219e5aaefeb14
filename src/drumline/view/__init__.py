"""WHAT PEOPLE SEE, as data: rows of plain values; no text, no colour, no engine."""
