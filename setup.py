"""The one thing that pyproject.toml cannot say: how the kernel of the loss is built, where there is a C compiler."""

import os
import sys
import sysconfig

from setuptools import Extension, setup

if sys.platform == "win32":
    FLAGS, LINK_FLAGS, LIBRARIES = ["/O2", "/std:c11", "/openmp"], [], []
else:
    # Comparisons may be vectorised, because nobody looks at the flags that they raise. Threads with GCC on Linux alone:
    # its runtime is the one that torch itself uses, and two in one process do not go together.
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or ""
    threads = sys.platform == "linux" and "clang" not in compiler
    openmp = "-fopenmp" if threads else "-fopenmp-simd"
    FLAGS = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", openmp]
    LINK_FLAGS, LIBRARIES = [openmp] if threads else [], ["m"]

KERNEL = Extension(
    "tpkd.objectives._kernel",
    ["src/tpkd/objectives/_kernel.c"],
    define_macros=[("Py_LIMITED_API", "0x030b0000")],
    extra_compile_args=FLAGS,
    extra_link_args=LINK_FLAGS,
    libraries=LIBRARIES,
    py_limited_api=True,
    depends=["setup.py"],
    # Without a compiler the same is done by tensor code; a wheel for others had better not be built without one.
    optional=os.environ.get("TPKD_REQUIRE_KERNEL") != "1",
)

if sysconfig.get_config_var("Py_GIL_DISABLED"):  # which has no stable interface to compile for
    setup()
else:
    setup(ext_modules=[KERNEL], options={"bdist_wheel": {"py_limited_api": "cp311"}})
