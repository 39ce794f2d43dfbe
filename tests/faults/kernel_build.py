"""The kernels built another way, in their own directory: for the baseline processor, with sanitizers or without."""

import importlib.util
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SANITIZERS = "-fsanitize=address,undefined"
_KERNELS = ("tpkd.objectives.kernels._cpu", "tpkd.diagnosis._rows")


def build_kernels(directory: Path, flags: str = "") -> None:
    """Build the kernels of this source tree as `setup.py` does, for the baseline processor."""
    environment = {
        **os.environ,
        "TPKD_BASELINE_KERNEL": "1",
        "TPKD_REQUIRE_KERNEL": "1",
        "CFLAGS": f"{os.environ.get('CFLAGS', '')} {flags}",
        "LDFLAGS": f"{os.environ.get('LDFLAGS', '')} {flags}",
    }
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    command += ["--build-lib", str(directory), "--build-temp", str(directory / "objects")]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]


def build_sanitized_kernels(directory: Path) -> dict[str, str]:
    """The kernels under the address and undefined-behaviour sanitizers; returns the environment to load them in."""
    flags = [_SANITIZERS, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]
    if "clang" in _compiler()[0]:
        flags.append("-shared-libasan")  # whose default is part of the program, which Python is not
    build_kernels(directory, " ".join(flags))
    return {
        # Before everything else, because Python itself knows nothing of it; it looks for the exceptions of C++ at once.
        "LD_PRELOAD": f"{_runtime()} libstdc++.so.6",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python and torch keep much until the end
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def why_not_sanitized(directory: Path) -> str | None:
    """Why no sanitized kernel can be built and loaded here; nothing where one can."""
    if sys.platform != "linux":
        return f"sanitized libraries are loaded by LD_PRELOAD, which {sys.platform} does not have"
    source, program = directory / "nothing.c", directory / "nothing"
    source.write_text("int main(void) { return 0; }\n")
    command = [*_compiler(), _SANITIZERS, str(source), "-o", str(program)]
    try:
        works = subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        works = False
    if not works or _runtime() is None:
        return f"the C compiler {_compiler()[0]!r} has no address and undefined-behaviour sanitizers, or is not there"
    return None


def use_kernels(directory: str) -> None:
    """Let tpkd import the kernels of this directory instead of its own; before the first import of tpkd."""
    assert "tpkd" not in sys.modules
    for name in _KERNELS:
        (library,) = Path(directory).glob(name.replace(".", "/") + "*")
        spec = importlib.util.spec_from_file_location(name, library)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    from tpkd.diagnosis import rows
    from tpkd.objectives.kernels import cpu

    assert [cpu._kernel, rows._kernel] == [sys.modules[name] for name in _KERNELS]


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def _runtime() -> Path | None:
    """The library of the address sanitizer: GCC's or clang's."""
    for name in ("libasan.so", f"libclang_rt.asan-{platform.machine()}.so"):
        command = [_compiler()[0], f"-print-file-name={name}"]
        found = Path(subprocess.run(command, capture_output=True, text=True).stdout.strip())
        if not found.is_absolute() or not found.exists():
            continue
        with found.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                return found
        # Some distributions have a linker script in its place, which names the library.
        named = re.search(r"(/\S+libasan\.so\S*)", found.read_text(errors="replace"))
        if named and Path(named[1]).exists():
            return Path(named[1])
    return None
