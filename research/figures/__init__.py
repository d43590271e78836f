"""Programs that make the figures of docs/tlm.md, by hand: they take minutes or hours."""
