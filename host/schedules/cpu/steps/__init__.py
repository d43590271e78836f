"""Functions whose blocks are whole algorithms: sorts, regions of images, trees, small linear systems."""
