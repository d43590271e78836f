"""Commands that deploy nothing: `sdk tune`, `sdk profile` and `sdk explain`."""
