"""One bundle for a range of lengths against a bundle for each length."""
