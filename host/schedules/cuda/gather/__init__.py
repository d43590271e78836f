"""Elements at computed places on a GPU that have neighbours: resized images, rows of a table."""
