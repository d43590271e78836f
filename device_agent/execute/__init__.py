"""The process of a session, which runs models and kernels with one of the engines."""
