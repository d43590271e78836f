"""One bundle for a range of lengths: symbolic programs out of static ones, a few kernels and a dispatch."""

from host.dynamic.request import Dimension, Span, dimension_of

__all__ = ["Dimension", "Span", "dimension_of"]
