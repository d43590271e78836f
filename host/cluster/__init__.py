"""Hosts of a Ray cluster: what starts one, and the clusters that `edgetlm.toml` describes."""
