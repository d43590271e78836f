"""Language models out of transformers folders (config.json, *.safetensors): see `importer`.

Nothing is imported here, because the process of the golden outputs needs no compiler.
"""
