"""Language models out of GGUF files: see `model`. Nothing here needs the compiler."""
