"""How the language model is pre-trained and evaluated, and the searches that it is compared with.

The product does not need any of it: `sdk tlm pretrain`, `sdk tlm package` and `sdk tlm evaluate` alone do.
"""
