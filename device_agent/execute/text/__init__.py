"""From numbers of tokens to text and back, and the choice of the next token."""
