"""Charts as SVG: drawn on the host, so that a page needs no script and no library to show them."""
