"""The tests of the core on the oldest torch that pyproject.toml allows: `make test-oldest`.

`ARGS='--python python3.10'` takes another Python, `--torch VERSION` another torch. Older ones, and
those for other Pythons, come from PyPI with the CUDA libraries they were linked to: 2.5 GB to get,
5 GB on disk, in a folder that is removed afterwards (`--venv FOLDER` keeps it and uses it again).
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = [
    "attacks",
    "experiments",  # the runner, the problems and what draws them are not the core
    "problems",
    "benchmarks",
    "mutations",
    "repository",
    "objectives/sharded",  # torch.distributed.fsdp.fully_shard came with torch 2.6
    "paper/test_claims.py",
]
# torch 2.4 warns of its own calls when a tensor is pickled.
OWN_WARNING = "ignore:You are using `torch.load`:FutureWarning"


def oldest() -> str:
    """The version of the requirement torch>=2.4: 2.4.0."""
    found = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found, "pyproject.toml has no requirement of the form torch>=VERSION"
    version = found.group(1)
    return version + ".0" * (2 - version.count("."))


def install(folder: Path, version: str, interpreter: str) -> None:
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "install", "-q", f"torch=={version}"]
    subprocess.run(pip, check=True)
    subprocess.run([*pip, "-e", f"{ROOT}[dev]"], check=True)


def test(folder: Path, more: list[str]) -> int:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [folder / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "-W", OWN_WARNING]
    command += ["-p", "no:cacheprovider", "tests", *(f"--ignore=tests/{n}" for n in LEFT_OUT)]
    return subprocess.run([*command, *more], cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, help="keep the environment here")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to use")
    parser.add_argument("--torch", default=oldest(), help="the version of torch")
    chosen, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="firstish-oldest-") as name:
        folder = (chosen.venv or Path(name)).resolve()
        install(folder, chosen.torch, chosen.python)
        print(f"torch {chosen.torch} in {folder}", flush=True)
        return test(folder, more)


if __name__ == "__main__":
    sys.exit(main())
