"""Operations that make one element of many: sums and extremes over axes, and places of extremes."""
