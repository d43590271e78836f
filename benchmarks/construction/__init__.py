"""How near Gensor's programs are to the best by its own estimate."""
