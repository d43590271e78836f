"""TFLite: files read and converted to relax."""
