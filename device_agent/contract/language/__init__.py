"""What a bundle has for the texts of a language model beside its tokenizer."""
