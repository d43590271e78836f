"""All elementwise operators by all types of elements, beside the original runtimes."""
