"""The estimate of a design space, corrected by what a board has measured."""
