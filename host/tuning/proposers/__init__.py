"""The proposers of a tuning: several proposers as one, and one that learns from times."""
