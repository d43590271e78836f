"""`torch.export` archives (.pt2): what is checked of the archive and its program before torch reads them."""
