"""What a board's measurements do for networks that taught nothing."""
