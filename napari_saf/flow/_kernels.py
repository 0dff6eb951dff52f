"""Flow steps as loops over the pixels of a grid, compiled by numba with its disk cache.

One file, as numba recompiles a function if its own file changes, but not those of its callees.

Fields are columns first, (n_columns, n_nodes), so that inner loops run over neighbouring nodes and
vectorise. A box of the grid is processed slice by slice along the first axis, in buffers that fit
the caches, so that likelihoods and their means are never stored as fields. 2-D images have one row
per slice.

Slopes are softmaxes in units of 1 / 65535; the units of the sketch (rank, n_nodes) are included in
its factors. Scratch rows are zero-padded to even numbers, or multiples of four. Sums of indices are
unsigned, as numba checks signed ones for wraparound and does not vectorise.
"""

import hashlib
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types

f32, f64, i32, u64 = np.float32, np.float64, np.int32, np.uint64
FLOOR = f32(np.log(1e-10))
LEAST_EXPONENT = f32(-60)
ROW = 512
"""Nodes per block of loops without geometry."""
WHOLE = f32(65535)

_OPTIONS = {"fastmath": True, "nogil": True, "error_model": "numpy"}
_Field, _Slopes, _Sketch = types.float32[:, ::1], types.uint16[:, ::1], types.int16[:, ::1]
_Floats, _Sums, _Table = types.float32[::1], types.float64[:, ::1], types.int64[:, ::1]
_Numbers, _Six = types.UniTuple(types.float32, 5), types.UniTuple(types.int64, 6)
_State = types.Tuple((_Field, _Slopes, _Slopes))
_Flow = types.Tuple((_State, _Numbers, _Field, _Sketch, _Field, types.boolean))
_Grid = types.Tuple((types.uint16[::1], _Table, _Floats, _Table, types.int64[::1], _Six))
inline = numba.njit(**_OPTIONS)
entry = numba.njit(cache=True, **_OPTIONS)


def load() -> None:
    """Load the machine code from the cache, or compile it (half a minute)."""
    overlap.compile((_Flow, types.UniTuple(types.int64, 2), _Sums))
    out = types.Tuple((_Slopes, _Field, _Floats))
    step.compile((_Flow, out, types.int64[::1], _Grid, _Six, _Sums))


def compile_all() -> None:
    """Compile all kernels; needs a process of its own, as LLVM options are global."""
    # Loops over many rows are vectorised if these are disjoint, which is checked before each loop.
    llvm.set_option("", "-runtime-memory-check-threshold=64")
    llvm.set_option("", "-hoist-runtime-checks=false")
    load()
    marker().touch()


def marker() -> Path:
    """Return the file beside the cache that marks this version as compiled for this CPU."""
    source, features = Path(__file__).stat(), llvm.get_host_cpu_features().flatten()
    versions = sys.version, numba.__version__, source.st_size, source.st_mtime_ns
    key = hashlib.sha256(repr((versions, llvm.get_host_cpu_name(), features)).encode())
    return Path(step.stats.cache_path) / f"kernels-{key.hexdigest()[:20]}"


@inline
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


@inline
def assign(state, a, b, i, m, w, total):
    """Write W = softmax(V + a S + b S') of the nodes i to i + m into rows of `w`."""
    v, s, previous = state
    for k in range(m):
        total[k] = 0
    for j in range(len(v)):
        for k in range(m):
            w[j, k] = exp(v[j, i + k] + a * f32(s[j, i + k]) + b * f32(previous[j, i + k]))
            total[k] += w[j, k]
    for k in range(m):
        total[k] = f32(1) / total[k]
    for j in range(len(v)):
        for k in range(m):
            w[j, k] *= total[k]


@inline
def decode(sketch, first, i, m, four):
    """Write four rows of the sketch into `four`, ones past its end."""
    for q in range(4):
        row, n = u64(first + q), m if first + q < len(sketch) else u64(0)
        for k in range(n):
            four[q, k] = f32(sketch[row, i + k])
        for k in range(n, m):
            four[q, k] = 1


@inline
def mix(rows, first, factors, i, out, offset, m):
    """U_j <- U_j + sum_q B_qj F_q of the four rows F_q from `first` on, two columns at a time."""
    q0, q1, q2, q3 = first, first + 1, first + 2, first + 3
    for j in range(0, len(out), 2):
        a0, a1, a2, a3 = factors[i, j], factors[i + 1, j], factors[i + 2, j], factors[i + 3, j]
        n = j + 1
        b0, b1, b2, b3 = factors[i, n], factors[i + 1, n], factors[i + 2, n], factors[i + 3, n]
        for k in range(m):
            f0, f1, f2, f3 = rows[q0, k], rows[q1, k], rows[q2, k], rows[q3, k]
            out[j, offset + k] += a0 * f0 + a1 * f1 + a2 * f2 + a3 * f3
            out[n, offset + k] += b0 * f0 + b1 * f1 + b2 * f2 + b3 * f3


@inline
def inner(rows, first, w, start, m, sums, offset, number):
    """Add sum_k F_qk W_jk of four rows F_q, and W_j from `start` on, in the type `number`."""
    q0, q1, q2, q3 = first, first + 1, first + 2, first + 3
    for j in range(start, len(w), 2):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = number(0)
        for k in range(m):
            f0, f1 = number(rows[q0, k]), number(rows[q1, k])
            f2, f3 = number(rows[q2, k]), number(rows[q3, k])
            a, b = number(w[j, k]), number(w[j + 1, k])
            a0, a1, a2, a3 = a0 + a * f0, a1 + a * f1, a2 + a * f2, a3 + a * f3
            b0, b1, b2, b3 = b0 + b * f0, b1 + b * f1, b2 + b * f2, b3 + b * f3
        for q, (a, b) in enumerate(((a0, b0), (a1, b1), (a2, b2), (a3, b3))):
            sums[offset + q, j] += a
            sums[offset + q, j + 1] += b


@entry
def overlap(flow, nodes, sums):
    """Accumulate Phi'W, W'1 and, if mixed, the upper half of W'W over a range of nodes."""
    state, (a, b, _, _, _), _, sketch, _, is_mixed = flow
    fours = (len(state[0]) + 3) // 4 * 4
    w, four, total = np.zeros((fours, ROW), f32), np.zeros((4, ROW), f32), np.zeros(ROW, f32)
    for first in range(nodes[0], nodes[1], ROW):
        i, m = u64(first), u64(min(ROW, nodes[1] - first))
        assign(state, a, b, i, m, w, total)
        for k in range(0, fours if is_mixed else 0, 4):
            # float64: gradients need the small eigenvalues
            inner(w, k, w, k, m, sums, k, f64)
        for k in range(0, len(sketch) + 1, 4):
            decode(sketch, k, i, m, four)
            inner(four, 0, w, 0, m, sums, fours + k, f32)


@inline
def likelihood(flow, i, m, buffers, out, offset):
    """Write P + g(W) / rho, g = -D or the factored gradient, into rows of `out`."""
    (state, (a, b, _, _, _), cost, sketch, factors, is_mixed), (w, four, total) = flow, buffers
    v, s, previous = state
    for j in range(len(v)):
        for k in range(m):
            x = v[j, i + k] + (a * f32(s[j, i + k]) + b * f32(previous[j, i + k]))
            out[j, offset + k] = x + factors[0, 0] * cost[j, i + k] if len(cost) else x
    for k in range(0, len(sketch) + 1 if len(sketch) else 0, 4):
        decode(sketch, k, i, m, four)
        mix(four, 0, factors, k, out, offset, m)
    if is_mixed:
        assign(state, a, b, i, m, w, total)
        for k in range(0, len(v), 4):
            mix(w, k, factors, len(sketch) // 4 * 4 + 4 + k, out, offset, m)


@inline
def add_up(source, step, n, out, m):
    """Write sums of n entries, an odd number, at distance `step`, four at a time."""
    two = step + step
    for k in range(m):
        is_single, x = n % 4 == 1, source[k]
        out[k] = x if is_single else x + (source[step + k] + source[two + k])
    for q in range(step if n % 4 == 1 else step + two, u64(n) * step, two + two):
        for k in range(q, q + m):
            x = (source[k] + source[k + step]) + (source[k + two] + source[k + two + step])
            out[k - q] += x


@inline
def weigh(grid, slots, long, z, y, x, pixel, m, means, part):
    """Write sum_o w_o(p) L(p + o) of a row of pixels p; L is 0 outside the grid."""
    weights, offsets = grid[0], grid[1]
    means[:, :m] = 0
    for o in range(len(offsets)):
        first = u64(offsets[o, 3] + pixel)
        for k in range(m):
            part[k] = f32(weights[first + k])
        slot = slots[(z + offsets[o, 0]) % len(slots)]
        start = u64((y + offsets[o, 1]) * long + x + offsets[o, 2])
        for j in range(len(means)):
            for k in range(m):
                means[j, k] += part[k] * slot[j, start + k]


@inline
def correct(flow, out, seeds, inverse, i, m, means, buffers):
    """Write S = softmax of the means, and V + c1 S0 + c2 S + c3 S', normalised; see `compare`."""
    ((v, s, previous), (a, b, c1, c2, c3), _, _, _, _), (w, four, total) = flow, buffers
    (slopes, ahead, _), top, z, sums, c = out, four[0], four[1], four[2], len(v)
    for k in range(m):
        top[k], sums[k], total[k], z[k] = -np.inf, 0, 0, 0
    for j in range(c):
        for k in range(m):
            top[k] = max(top[k], means[j, k])
    for j in range(c):
        for k in range(m):
            means[j, k] = exp(max((means[j, k] - top[k]) * inverse[i + k], LEAST_EXPONENT))
            sums[k] += means[j, k]
    for k in range(m):
        top[k], sums[k] = LEAST_EXPONENT, f32(1) / sums[k]
    for j in range(c):
        for k in range(m):
            slope, s0, s1 = means[j, k] * sums[k], f32(s[j, i + k]), f32(previous[j, i + k])
            slopes[j, i + k] = np.uint16(i32(WHOLE * slope + f32(0.5)))
            w[j, k] = exp(v[j, i + k] + a * s0 + b * s1)
            total[k] += w[j, k]
            means[j, k] = v[j, i + k] + c1 * s0 + c2 * slope + c3 * s1
            top[k] = max(top[k], means[j, k])
    for j in range(c):
        for k in range(m if len(seeds) else u64(0)):
            if seeds[i + k] >= 0:
                means[j, k], top[k] = f32(0) if j == seeds[i + k] else FLOOR, f32(0)
        for k in range(m):
            ahead[j, i + k] = max(means[j, k] - top[k], FLOOR)
            means[j, k] = exp(ahead[j, i + k])
            z[k] += means[j, k]


@inline
def compare(cost, out, i, m, means, buffers, sums):
    """Accumulate the error |U - W|, the mean of V, and W, W^2 and W D, after `correct`."""
    (w, four, total), (_, ahead, highest) = buffers, out
    z = four[1]
    for k in range(m):
        z[k], total[k] = f32(1) / z[k], f32(1) / total[k]
        highest[i + k] = z[k]
    for j in range(len(ahead)):
        error = log = mass = square = costs = f32(0)
        for k in range(m):
            x, y = means[j, k] * z[k], w[j, k] * total[k]
            error += abs(x - y)
            log += x * ahead[j, i + k]
            mass += y
            square += y * y
            if len(cost):
                costs += y * cost[j, i + k]
        for q, x in enumerate((error, log, mass, square, costs)):
            sums[q, j] += x


@inline
def part_of(run, first, last):
    """Return first node, first pixel and length of a run clipped to a pixel range."""
    x = max(run[0], first)
    return u64(run[2] + x - run[0]), x, u64(max(0, min(run[1], last) - x))


@entry
def step(flow, out, seeds, grid, box, sums):
    """Evaluate the right-hand side and correct the state in a box of a grid, see `_fused.Grid`."""
    _, offsets, inverse, runs, rows, (depth, height, width, rz, ry, rx) = grid
    (z0, z1, y0, y1, x0, x1), c, n_slots = box, len(flow[0][0]), 2 * rz + 1
    # Rows begin at cache lines of 16 floats.
    long, n_lines = (x1 - x0 + 2 * rx + 15) // 16 * 16, y1 - y0 + 2 * ry
    even, fours, is_weighted = (c + 1) // 2 * 2, (c + 3) // 4 * 4, len(offsets) > 0
    size = (n_lines if is_weighted else y1 - y0) * long
    slots = np.zeros((n_slots, even, size), f32)
    slab = np.zeros((even, 0 if is_weighted else n_lines * long), f32)
    lines = np.zeros(n_lines * long, f32)
    window = np.zeros(size, f32) if ry > 0 else lines
    total = np.zeros((c, 0 if is_weighted else size), f32)
    buffers = np.zeros((fours, long), f32), np.zeros((4, long), f32), np.zeros(long, f32)
    means, part = np.zeros((c, long), f32), np.zeros(long, f32)
    for z in range(z0 - rz, z1 + rz):
        slot = slots[z % n_slots]
        target = slot if is_weighted else slab
        target[:] = 0
        for y in range(max(0, y0 - ry), min(height, y1 + ry) if 0 <= z < depth else 0):
            for n in range(rows[z * height + y], rows[z * height + y + 1]):
                i, x, m = part_of(runs[n], x0 - rx, x1 + rx)
                offset = u64((y - y0 + ry) * long + x - x0 + rx)
                likelihood(flow, i, m, buffers, target, offset)
        for j in range(0 if is_weighted else c):
            add_up(slab[j], u64(1), 2 * rx + 1, lines, u64(n_lines * long - 2 * rx))
            if ry > 0:
                add_up(lines, u64(long), 2 * ry + 1, window, u64(size))
            for k in range(size):
                total[j, k] += window[k] - slot[j, k]
                slot[j, k] = window[k]
        done = z - rz
        for y in range(y0, y1 if done >= z0 else y0):
            for n in range(rows[done * height + y], rows[done * height + y + 1]):
                i, x, m = part_of(runs[n], x0, x1)
                if is_weighted:
                    pixel = (done * height + y) * width + x
                    weigh(grid, slots, long, done, y - y0 + ry, x - x0 + rx, pixel, m, means, part)
                else:
                    offset = u64((y - y0) * long + x - x0)
                    for j in range(c):
                        for k in range(m):
                            means[j, k] = total[j, offset + k]
                correct(flow, out, seeds, inverse, i, m, means, buffers)
                compare(flow[2], out, i, m, means, buffers, sums)
