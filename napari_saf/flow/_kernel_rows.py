"""Loops over the nodes of a row, compiled by numba for `_kernels.py`.

Arrays are pointers: `o` is where something begins in `u`, `t` the distance between its columns,
of which there are c, and m the number of nodes.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

f32, f64, i32 = np.float32, np.float64, np.int32
kernel = njit(fastmath=True, nogil=True, error_model="numpy")

LEAST_EXPONENT = f32(-60)


@intrinsic
def fetch(_, source, i):
    """Bring the line of memory of source[i] into the caches; any address will do."""

    def code(context, builder, _, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(call, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(source, i), code


@kernel
def fetch_row(source, i, m, line):
    """Ask for m numbers that are read later, in pieces too short for a processor to foresee."""
    for x in range(0, m + line, line):
        fetch(source, i + x)


@kernel
def fetch_state(v, s, before, i, m):
    """Ask for the state and the slopes of m nodes, of one column."""
    fetch_row(v, i, m, 16)
    fetch_row(s, i, m, 32)
    fetch_row(before, i, m, 32)


@kernel
def exp(x):
    """2^(x log2 e) = 2^n 2^f, f in [-1/2, 1/2], by a polynomial: relative error 1e-7."""
    z = x * f32(1.4426950408889634)
    n = np.rint(z)
    f = z - n
    p = f32(1.327647129073739e-3) * f + f32(9.675540961325169e-3)
    p = p * f + f32(5.550713092088699e-2)
    p = p * f + f32(0.24022120237350464)
    p = p * f + f32(0.6931469440460205)
    p = p * f + f32(1.0000001192092896)
    return p * i32((i32(n) + i32(127)) << i32(23)).view(f32)


@kernel
def log(x):
    """k log 2 + log m, m in [0.7, 1.4], by a polynomial in m - 1: relative error 1e-7."""
    bits = f32(x).view(i32) - i32(0x3F3504F3)
    k = bits >> i32(23)
    f = i32((bits & i32(0x7FFFFF)) + i32(0x3F3504F3)).view(f32) - f32(1)
    p = f32(7.0376836292e-2) * f - f32(1.1514610310e-1)
    p = p * f + f32(1.1676998740e-1)
    p = p * f - f32(1.2420140846e-1)
    p = p * f + f32(1.4249322787e-1)
    p = p * f - f32(1.6668057665e-1)
    p = p * f + f32(2.0000714765e-1)
    p = p * f - f32(2.4999993993e-1)
    p = p * f + f32(3.3333331174e-1)
    return f + f * f * (f * p - f32(0.5)) + f32(k) * f32(0.6931471805599453)


@kernel
def normalise(u, o, t, c, m, row):
    """W = E / sum_j E_j, in place, by the sums in a row."""
    for x in range(m):
        u[row + x] = f32(1) / u[row + x]
    for j in range(c):
        for x in range(m):
            u[o + j * t + x] *= u[row + x]


@kernel
def exponentials(u, o, t, c, m, source, stride, row, top, total):
    """exp(r (x_j - max_k x_k)) of c rows with factors r, their largest entries, and the sums."""
    for x in range(m):
        u[top + x] = u[source + x]
        u[total + x] = f32(0)
    for j in range(1, c):
        for x in range(m):
            u[top + x] = max(u[top + x], u[source + j * stride + x])
    for j in range(c):
        to, own = o + j * t, source + j * stride
        for x in range(m):
            e = exp(max((u[own + x] - u[top + x]) * u[row + x], LEAST_EXPONENT))
            u[to + x] = e
            u[total + x] += e


@kernel
def decode(u, o, t, n_rows, m, source, i, stride, ahead):
    """Numbers of 16 bits, from i on in each of some rows, as they are; those ahead come next."""
    for k in range(n_rows):
        fetch_row(source, i + k * stride + ahead, m, 32)
        for x in range(m):
            u[o + k * t + x] = f32(source[i + k * stride + x])


@kernel
def mix(u, o, t, c, m, source, i, stride, n_rows, factors, first):
    """U_j <- U_j + sum_k B_kj F_k, k below n_rows, B from `first` in the factors.

    Four rows and two columns at a time.
    """
    pairs, fours = c // 2 * 2, n_rows // 4 * 4
    for k in range(0, fours, 4):
        p0, p1 = i + k * stride, i + (k + 1) * stride
        p2, p3 = i + (k + 2) * stride, i + (k + 3) * stride
        for j in range(0, pairs, 2):
            q, o0, o1 = first + k * c + j, o + j * t, o + (j + 1) * t
            a0, a1, a2, a3 = factors[q], factors[q + c], factors[q + 2 * c], factors[q + 3 * c]
            q += 1
            b0, b1, b2, b3 = factors[q], factors[q + c], factors[q + 2 * c], factors[q + 3 * c]
            for x in range(m):
                f0, f1, f2, f3 = source[p0 + x], source[p1 + x], source[p2 + x], source[p3 + x]
                u[o0 + x] += a0 * f0 + a1 * f1 + a2 * f2 + a3 * f3
                u[o1 + x] += b0 * f0 + b1 * f1 + b2 * f2 + b3 * f3
        for j in range(pairs, c):
            q, to = first + k * c + j, o + j * t
            a0, a1, a2, a3 = factors[q], factors[q + c], factors[q + 2 * c], factors[q + 3 * c]
            for x in range(m):
                f0, f1, f2, f3 = source[p0 + x], source[p1 + x], source[p2 + x], source[p3 + x]
                u[to + x] += a0 * f0 + a1 * f1 + a2 * f2 + a3 * f3
    for k in range(fours, n_rows):
        for j in range(c):
            a0 = factors[first + k * c + j]
            for x in range(m):
                u[o + j * t + x] += a0 * source[i + k * stride + x]


@kernel
def add_along_rows(u, o, to, m, side):
    """Sums of `side` neighbours in a row."""
    k = min(side, 3)
    for x in range(m):
        u[to + x] = u[o + x] if k == 1 else u[o + x] + (u[o + 1 + x] + u[o + 2 + x])
    while k + 4 <= side:
        for x in range(m):
            p = o + k + x
            u[to + x] += (u[p] + u[p + 1]) + (u[p + 2] + u[p + 3])
        k += 4
    if k < side:
        for x in range(m):
            u[to + x] += u[o + k + x] + u[o + k + 1 + x]


@kernel
def add_weighted(u, o, t, c, m, stride, places, weights, starts):
    """U_j <- U_j + sum_k w_k L_jk of four weights and rows L_jk, two columns at a time."""
    (p0, p1, p2, p3), (k0, k1, k2, k3), pairs = places, starts, c // 2 * 2
    for j in range(0, pairs, 2):
        o0, o1, a, b = o + j * t, o + (j + 1) * t, j * stride, (j + 1) * stride
        for x in range(m):
            w0, w1 = f32(weights[k0 + x]), f32(weights[k1 + x])
            w2, w3 = f32(weights[k2 + x]), f32(weights[k3 + x])
            one = w0 * u[p0 + a + x] + w1 * u[p1 + a + x]
            other = w0 * u[p0 + b + x] + w1 * u[p1 + b + x]
            u[o0 + x] += one + (w2 * u[p2 + a + x] + w3 * u[p3 + a + x])
            u[o1 + x] += other + (w2 * u[p2 + b + x] + w3 * u[p3 + b + x])
    for j in range(pairs, c):
        to, a = o + j * t, j * stride
        for x in range(m):
            one = f32(weights[k0 + x]) * u[p0 + a + x] + f32(weights[k1 + x]) * u[p1 + a + x]
            other = f32(weights[k2 + x]) * u[p2 + a + x] + f32(weights[k3 + x]) * u[p3 + a + x]
            u[to + x] += one + other


@kernel
def inner(u, o, t, c, m, source, i, stride, n_rows, sums, first, number, is_own):
    """sum_x F_kx U_jx added to sums[first + k c + j]: numbers of a type in a row, then float64.

    Where F is U (`is_own`), for j >= k only.
    """
    pairs, fours = c // 2 * 2, n_rows // 4 * 4
    for k in range(0, fours, 4):
        p0, p1 = i + k * stride, i + (k + 1) * stride
        p2, p3 = i + (k + 2) * stride, i + (k + 3) * stride
        for j in range(k if is_own else 0, pairs, 2):
            q, o0, o1 = first + k * c + j, o + j * t, o + (j + 1) * t
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = number(0)
            for x in range(m):
                f0, f1 = number(source[p0 + x]), number(source[p1 + x])
                f2, f3 = number(source[p2 + x]), number(source[p3 + x])
                a, b = number(u[o0 + x]), number(u[o1 + x])
                a0, a1, a2, a3 = a0 + a * f0, a1 + a * f1, a2 + a * f2, a3 + a * f3
                b0, b1, b2, b3 = b0 + b * f0, b1 + b * f1, b2 + b * f2, b3 + b * f3
            for r, (s0, s1) in enumerate(((a0, b0), (a1, b1), (a2, b2), (a3, b3))):
                sums[q + r * c] += s0
                sums[q + r * c + 1] += s1
    for k in range(n_rows):
        for j in range(0 if k >= fours else pairs, c):
            if is_own and j < k:
                continue
            a0 = number(0)
            for x in range(m):
                a0 += number(u[o + j * t + x]) * number(source[i + k * stride + x])
            sums[first + k * c + j] += a0
