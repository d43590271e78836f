"""Products with quantised weights: tiles of rows and panels, summed group by group."""
