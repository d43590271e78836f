"""A language model beside other engines: their processes and files, and rounds in which they work in turn."""
