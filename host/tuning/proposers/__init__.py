"""Who proposes the programs that are measured: several proposers as one, and one that learns from times."""
