"""The host: importers, lowering, construction, building, measuring and deploying."""
