"""Management of devices, keys, records and the language model, and an inventory of this host."""
