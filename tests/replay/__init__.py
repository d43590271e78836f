"""The process replay: what programs, objects and bundles come out of models, compared between two commits.

See docs/process-replay.md. `adapter` is the only module here that knows the product's names.
"""
