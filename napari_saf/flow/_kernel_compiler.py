"""Compiles the functions of `_kernels.py`; this file is run, never imported.

``python _kernel_compiler.py PART TARGET`` writes the machine code for the processor it runs on,
where `_fused` loads it from.
"""

import json
import os
import sys
from struct import unpack_from

import llvmlite.binding as llvm
from _kernels import SIGNATURES
from numba import njit, types

KNOWN = {"memset", "memcpy"}
"""The functions outside that machine code may call: a name that is unknown where it is loaded ends
the program."""


def needed(code):
    """The names that an object file, 64 bits ELF, leaves undefined, by its table of symbols."""
    (start,), (size, count) = unpack_from("<Q", code, 40), unpack_from("<HH", code, 58)
    sections = [unpack_from("<IIQQQQII", code, start + k * size) for k in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for place in range(offset, offset + length, 24):
            name, _, _, section = unpack_from("<IBBH", code, place)
            if name and section == 0:  # SHN_UNDEF
                found.add(code[names + name : code.index(b"\0", names + name)].decode())
    return found


def main(part, target):
    """Write the names of the functions, a line of JSON, and the machine code of each."""
    # Rows that differ in a loop are compared there: over the loops around it they overlap.
    llvm.set_option("", "-hoist-runtime-checks=false")
    llvm.set_option("", "-runtime-memory-check-threshold=64")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if llvm.get_process_triple().startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )
    names, codes = {}, []
    for function, arguments in SIGNATURES.items():
        # The functions alone: wrappers need numba where they are called.
        compiled = njit(
            types.void(*arguments), fastmath=True, nogil=True, error_model="numpy",
            no_cpython_wrapper=True, no_cfunc_wrapper=True,
        )(function)  # fmt: skip
        (found,) = compiled.overloads.values()
        code = machine.emit_object(llvm.parse_assembly(found.library.get_llvm_str()))
        missing = needed(code) - KNOWN
        if missing:
            raise SystemExit(f"{function.__name__} calls {missing}, which is not there at run time")
        names[function.__name__] = found.fndesc.mangled_name, len(code)
        codes.append(code)
    with open(part, "wb") as file:
        file.write(json.dumps(names).encode() + b"\n" + b"".join(codes))
    os.replace(part, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
