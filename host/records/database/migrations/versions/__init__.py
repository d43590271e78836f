"""One revision a module. A revision that was released is never changed."""
