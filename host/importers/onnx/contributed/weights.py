"""Products with weights of a few bits, whose packed form is written as operations on constants."""

from __future__ import annotations

import numpy as np

from host.importers.onnx.contributed.body import Body


def _unpacked(body: Body, packed: str, bits: int, rows: int, columns: int) -> str:
    """The whole numbers of bytes, the lowest bits first, as [rows, columns] of the type of bytes.

    Args:
        body: gets the nodes.
        packed: bytes of any shape, row after row; the last byte of a row may have bits to spare.
        bits: of each number: 2, 4 or 8.
        rows: number of rows.
        columns: numbers in a row.
    """
    flat = body.reshape(packed, rows, -1)
    if bits == 8:
        return body.part(flat, 0, columns, 1)
    each = 8 // bits
    shifts = body.constant(np.arange(0, 8, bits)[None, None], np.uint8)
    shifted = body.add("BitShift", body.unsqueeze(flat, 2), shifts, direction="RIGHT")
    size = 1 << bits
    lowest = body.add("Mod", shifted, body.constant(size, np.uint8)) if each > 1 else shifted
    return body.part(body.reshape(lowest, rows, -1), 0, columns, 1)


def _stays_packed(body: Body) -> bool:
    """Whether the compiler multiplies with the packed weights: whole blocks of 4 or 8 bits.

    The converter is in `host.importers.onnx.operators.packed_products`.
    """
    a, _, scales, zeros = body.inputs(4)
    bits, block = body.attribute("bits", 4), body.attribute("block_size", 0)
    whole = block % 32 == 0 and body.attribute("K", 0) % block == 0
    packed = not zeros or body.dtype(zeros) == np.uint8
    floats = all(body.dtype(one) in (np.float32, np.float16) for one in (a, scales))
    return bits in (4, 8) and whole and packed and floats


def _product(body: Body) -> None:
    a, packed, scales, zeros, order, bias = body.inputs(6)
    body.without(g_idx=order)
    depth, columns = body.attribute("K", 0), body.attribute("N", 0)
    bits, block = body.attribute("bits", 4), body.attribute("block_size", 0)
    if bits not in (2, 4, 8) or min(depth, columns) < 1 or block < 16 or block & (block - 1):
        raise body.fail(f"weights of {bits} bits in blocks of {block} have no conversion")
    blocks = -(-depth // block)
    if np.prod(body.shape(packed)) != columns * blocks * block * bits // 8:
        raise body.fail(f"weights of shape {list(body.shape(packed))} are none of {depth} by {columns}")
    kind, element = body.dtype(a), body.element(a)
    if body.keeps_packed and _stays_packed(body):
        body.keep(element, (*body.shape(a)[:-1], columns))
        return
    whole = body.add("Cast", _unpacked(body, packed, bits, columns, blocks * block), to=element)
    whole = body.reshape(whole, columns, blocks, block)
    zero = body.constant(1 << (bits - 1), kind)
    if zeros and body.dtype(zeros) == np.uint8:
        zero = body.add("Cast", _unpacked(body, zeros, bits, columns, blocks), to=element)
        zero = body.reshape(zero, columns, blocks, 1)
    elif zeros:
        zero = body.reshape(zeros, columns, blocks, 1)
    scale = body.reshape(scales, columns, blocks, 1)
    real = body.add("Mul", body.add("Sub", whole, zero), scale)
    real = body.part(body.reshape(real, columns, -1), 0, depth, 1)
    made = body.add("MatMul", a, body.add("Transpose", real, perm=[1, 0]))
    body.set_output(body.add("Add", made, bias) if bias else made)


EXPANSIONS = {"MatMulNBits": _product}
