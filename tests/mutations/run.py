"""Show that each known fault makes its named test fail: `python tests/mutations/run.py [-k NAME]`.

Each fault goes into a copy of src of its own, and only its test runs, on that copy. The exit code
is 1 if a fault survives, if its line is not found exactly once, or if a named test fails without.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faults import FAULTS, Fault

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROCESSES = 2
SECONDS = 120
PASSED, FAILED = 0, 1  # pytest's exit codes; others mean that it could not run the tests


def pytest_on(source: Path, tests: list[str]) -> tuple[int, str]:
    """Run these tests on the firstish in `source`: the exit code and the output."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source), str(HERE)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "FIRSTISH_SOURCE": str(source),
        "OMP_NUM_THREADS": "1",
    }
    options = ["-q", "-x", "--no-header", "--tb=short", "--hypothesis-profile=mutations"]
    plugins = ["-p", "source_is", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *plugins, *options, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no answer within {SECONDS} s"
    return done.returncode, done.stdout + done.stderr


def copy_source(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def attempt(fault: Fault, folder: Path) -> tuple[str, str]:
    """What became of the fault, and the output if it was not caught."""
    source = copy_source(folder / fault.name)
    path = source / "firstish" / fault.file
    text = path.read_text(encoding="utf-8")
    found = text.count(fault.original)
    if found != 1:
        return f"FOUND {found} TIMES", fault.original
    path.write_text(text.replace(fault.original, fault.faulty))
    code, output = pytest_on(source, [fault.test])
    shutil.rmtree(source)
    if code == FAILED:
        return "yes", ""
    return ("SURVIVED" if code == PASSED else f"PYTEST EXIT {code}"), output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", metavar="NAME", default="", help="only faults whose name has NAME")
    chosen = [f for f in FAULTS if parser.parse_args().k in f.name]
    if not chosen:
        print("No fault has that name.")
        return 1
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = sorted({fault.test for fault in chosen})
        code, output = pytest_on(copy_source(folder / "unchanged"), tests)
        if code != PASSED:
            print(output)
            print(f"The named tests do not pass without a fault (pytest exit code {code}).")
            return 1
        print(f"{len(tests)} named tests pass without a fault.\n")
        print(f"{'fault':38} | {'test':84} | caught", flush=True)
        missed = []
        with ThreadPoolExecutor(PROCESSES) as pool:
            for fault, (caught, output) in zip(
                chosen, pool.map(lambda f: attempt(f, folder), chosen), strict=True
            ):
                print(f"{fault.name:38} | {fault.test.split('/')[-1]:84} | {caught}", flush=True)
                if caught != "yes":
                    missed.append((fault, output))
    for fault, output in missed:
        print(f"\n{fault.name}: {fault.reason}\n{output}")
    caught = len(chosen) - len(missed)
    print(f"\n{caught} of {len(chosen)} caught in {time.perf_counter() - start:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
