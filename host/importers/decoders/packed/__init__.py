"""Folders of transformers whose weights are packed whole numbers: GPTQ and AWQ."""
