"""A harness that stays: malformed and malicious input for every reader, and the rules that they keep."""
