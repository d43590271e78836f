"""The process of a session: runs models and kernels with one of the engines."""
