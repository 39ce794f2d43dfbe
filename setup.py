"""Build the kernels of the loss and of the diagnosis if there is a C compiler, which pyproject.toml cannot express.

Environment variables:
    TPKD_REQUIRE_KERNEL=1   a kernel that cannot be built is an error
    TPKD_BASELINE_KERNEL=1  compile for the oldest processor of the architecture only
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup

if sys.platform == "win32":
    FLAGS, LINK_FLAGS, LIBRARIES = ["/O2", "/std:c11", "/openmp"], [], []
else:
    # Comparisons may be vectorised: we never read floating-point exception flags. Threads with GCC on Linux alone: its
    # runtime is the one that torch itself uses, and two OpenMP runtimes in one process conflict.
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or ""
    threads = sys.platform == "linux" and "clang" not in compiler
    openmp = "-fopenmp" if threads else "-fopenmp-simd"
    FLAGS = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", openmp]
    LINK_FLAGS, LIBRARIES = [openmp] if threads else [], ["m"]

MACROS: list[tuple[str, str | None]] = [("Py_LIMITED_API", "0x030b0000")]
if os.environ.get("TPKD_BASELINE_KERNEL") == "1":
    MACROS.append(("BASELINE_PROCESSOR", None))

KERNELS = [
    Extension(
        name,
        [f"src/{name.replace('.', '/')}.c"],
        define_macros=MACROS,
        extra_compile_args=FLAGS,
        extra_link_args=LINK_FLAGS,
        libraries=LIBRARIES,
        py_limited_api=True,
        depends=["setup.py", "src/tpkd/vectorised.h"],
        # Without a compiler, tensor code takes over; a wheel for release must have its kernels.
        optional=os.environ.get("TPKD_REQUIRE_KERNEL") != "1",
    )
    for name in ("tpkd.objectives.kernels._cpu", "tpkd.diagnosis._rows")
]

if sysconfig.get_config_var("Py_GIL_DISABLED"):  # free-threaded Python has no stable ABI
    setup()
else:
    setup(ext_modules=KERNELS, options={"bdist_wheel": {"py_limited_api": "cp311"}})
