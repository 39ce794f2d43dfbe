"""The one thing that pyproject.toml cannot say: how the compiled loss is built, where there is a C compiler."""

import sys

from setuptools import Extension, setup

LINUX = sys.platform.startswith("linux")
if sys.platform == "win32":
    FLAGS = ["/O2", "/std:c11", "/openmp"]
else:
    # Comparisons of numbers may be vectorised, because nobody looks at the flags that they raise. Threads on Linux
    # alone, where the compiler brings what torch itself uses.
    FLAGS = ["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fopenmp" if LINUX else "-fopenmp-simd"]

setup(
    ext_modules=[
        Extension(
            "tpkd.objectives._kernel",
            ["src/tpkd/objectives/_kernel.c"],
            extra_compile_args=FLAGS,
            extra_link_args=["-fopenmp"] if LINUX else [],
            py_limited_api=True,
            optional=True,  # without a compiler the same is done by tensor code
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
