"""What measured programs of a GPU teach about the GPU's other networks."""
