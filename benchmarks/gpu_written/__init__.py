"""Programs of the language model beside chance and construction, timed on a GPU."""
