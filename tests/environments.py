"""`make test` in one environment after the other, and a table of how each went.

    python tests/environments.py                          all of them, a few at a time
    python tests/environments.py --list                   their names
    python tests/environments.py narrow two-threads       these, one after the other
    python tests/environments.py narrow+c+mkl             these three at once
    python tests/environments.py c -- tests/experiments   only some tests; any words of pytest

Where several at once fail, run the same tests under each alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as any:  # SIOCSIFFLAGS: IFF_UP
    fcntl.ioctl(any, 0x8914, struct.pack("16sH14x", b"lo", 1))
os.execvp(sys.argv[1], sys.argv[1:])
"""
UNSHARE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What differs from the environment that the script was called in."""

    why: str
    set: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    before: tuple[str, ...] = ()  # words in front of the command
    pytest: tuple[str, ...] = ()  # words for pytest
    one_core: bool = False


ENVIRONMENTS = {
    "plain": Environment(why="as the script was called"),
    "default": Environment(
        why="no vector instructions in torch's kernels", set={"ATEN_CPU_CAPABILITY": "default"}
    ),
    "avx2": Environment(why="AVX2 in torch's kernels", set={"ATEN_CPU_CAPABILITY": "avx2"}),
    "mkl": Environment(why="MKL as on any processor", set={"MKL_CBWR": "COMPATIBLE"}),
    "one-thread": Environment(
        why="one thread of torch", set={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ),
    "two-threads": Environment(
        why="two threads of torch", set={"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    ),
    "one-core": Environment(why="all processes on one core", one_core=True),
    "in-order": Environment(why="tests in order", pytest=("-p", "no:randomly")),
    "shuffled": Environment(
        why="tests in random order", pytest=("-p", "randomly", "--randomly-seed=1")
    ),
    "offline": Environment(
        why="no network but the loopback", before=(*UNSHARE, sys.executable, "-c", LOOPBACK)
    ),
    "no-home": Environment(
        why="a home that cannot be written or even made",
        set={"HOME": "/proc/none"},
        unset=("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR"),
    ),
    "warnings": Environment(
        why="warnings are errors, in the processes that tests start as well",
        set={"PYTHONWARNINGS": "error"},
        pytest=("-W", "error"),
    ),
    "narrow": Environment(why="a terminal of 20 columns", set={"COLUMNS": "20"}),
    "wide": Environment(why="a terminal of 400 columns", set={"COLUMNS": "400"}),
    "no-colour": Environment(why="NO_COLOR", set={"NO_COLOR": "1"}, unset=("FORCE_COLOR",)),
    "colour": Environment(why="FORCE_COLOR", set={"FORCE_COLOR": "1"}, unset=("NO_COLOR",)),
    "dumb": Environment(why="a terminal that only prints", set={"TERM": "dumb"}),
    "c": Environment(why="the C locale", set={"LANG": "C", "LC_ALL": "C"}),
    "ascii": Environment(
        why="the C locale, and Python does not make UTF-8 of it",
        set={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    "ci": Environment(why="CI=true", set={"CI": "true", "GITHUB_ACTIONS": "true"}),
    "no-ci": Environment(why="CI unset", unset=("CI", "GITHUB_ACTIONS")),
    "zone": Environment(why="another time zone", set={"TZ": "Asia/Kathmandu"}),
}

# Each environment once; those that have nothing to do with each other at the same time.
ALL = (
    "plain+in-order+one-thread+no-ci",
    "default+two-threads+shuffled+narrow+colour+c+ci+offline+no-home+warnings",
    "avx2+mkl+one-core+wide+no-colour+dumb+ascii+zone",
)


def main() -> int:
    """Run what was asked for; 1 if any of it failed."""
    asked, chosen = _arguments(sys.argv[1:])
    if asked.list:
        print("\n".join(f"{name:12}  {e.why}" for name, e in ENVIRONMENTS.items()))
        return 0
    results = [_run(name, chosen) for name in asked.environments or ALL]
    print(_table(results))
    return int(not all(good for *_, good in results))


def _arguments(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Ours, and after `--` those of pytest."""
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description="The tests in many environments.")
    parser.add_argument("environments", nargs="*", metavar="NAME", help="joined by + for at once")
    parser.add_argument("--list", action="store_true", help="name the environments")
    asked = parser.parse_args(words[:cut])
    unknown = {n for one in asked.environments for n in one.split("+")} - ENVIRONMENTS.keys()
    if unknown:
        parser.error(f"no environment named {', '.join(sorted(unknown))}; see --list")
    return asked, words[cut + 1 :]


def _run(name: str, chosen: list[str]) -> tuple[str, dict[str, int], float, bool]:
    """One line of the table: name, how many tests ended how, seconds, whether all is well."""
    print(f"== {name}", flush=True)
    start = time.perf_counter()
    process = subprocess.Popen(
        _command([ENVIRONMENTS[n] for n in name.split("+")], chosen),
        env=_variables([ENVIRONMENTS[n] for n in name.split("+")]),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        preexec_fn=_first_core if "one-core" in name.split("+") else None,
    )
    assert process.stdout is not None
    counts: dict[str, int] = {}
    for line in process.stdout:
        print(line, end="", flush=True)
        counts = _counts(line) or counts
    good = process.wait() == 0
    return name, counts, time.perf_counter() - start, good


def _command(environments: list[Environment], chosen: list[str]) -> list[str]:
    """All of `make test`, or its tests alone where some were chosen.

    Without a stamp: what runs this has been set up, and offline it could not be.
    """
    words = [w for e in environments for w in e.pytest] + chosen
    arguments = shlex.join(words).replace("$", "$$")
    target = "unit" if chosen else "test"
    make = ["make", "-s", target, "STAMP=", f"BIN={Path(sys.executable).parent}"]
    return [*(w for e in environments for w in e.before), *make, f"ARGS={arguments}"]


def _variables(environments: list[Environment]) -> dict[str, str]:
    """The variables of the process; what was asked of the make that called us is not passed on."""
    unset = {name for e in environments for name in e.unset} | {"ARGS", "MAKEFLAGS", "MAKELEVEL"}
    kept = {k: v for k, v in os.environ.items() if k not in unset}
    for e in environments:
        kept |= e.set
    return kept


def _first_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _counts(line: str) -> dict[str, int]:
    """The numbers in the last line of pytest; none in any other line."""
    line = re.sub(r"\x1b\[[\d;]*m", "", line)
    if not re.search(r" in \d+\.\d+s", line):
        return {}
    found = re.findall(r"(\d+) (passed|failed|skipped|errors?)", line)
    return {kind.removesuffix("s"): int(number) for number, kind in found}


def _table(results: list[tuple[str, dict[str, int], float, bool]]) -> str:
    width = max(len("environment"), *(len(name) for name, *_ in results))
    kinds = ("passed", "failed", "error", "skipped")
    lines = [f"{'environment':{width}}" + "".join(f"{k:>9}" for k in (*kinds, "seconds"))]
    for name, counts, seconds, good in results:
        numbers = "".join(f"{counts.get(kind, 0):>9,}" for kind in kinds)
        lines.append(f"{name:{width}}{numbers}{seconds:>9.0f}" + ("" if good else "  FAILED"))
    return "\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
