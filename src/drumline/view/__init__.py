"""What commands show, as plain values: no text, no colour, no engine."""
