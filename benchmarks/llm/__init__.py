"""Language models with seeded random weights beside other engines: tokens a second, memory, accuracy."""
