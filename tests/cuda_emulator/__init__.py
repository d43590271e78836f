"""CUDA source as code of this machine: threads of a block as coroutines, and PTX instructions as functions.

`threads.h` has what CUDA C++ gives to a kernel, `banks.h` shared memory, `instructions.h` the instructions of
PTX, `blocks.h` the order in which threads run. `inline_ptx` turns `asm` statements into calls of them.
"""
