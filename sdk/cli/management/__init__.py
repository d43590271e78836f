"""Commands about devices, keys, records, reports and the language model."""
