"""Run the solver under benchopt, against the stand-ins beside it, and print who needed what.

python -m venv venv && venv/bin/pip install torch==2.13.0 benchopt scikit-learn .
venv/bin/python benchmarks/benchopt/run.py [--gap 1e-6] [benchopt's own options]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas

HERE = Path(__file__).resolve().parent


def run(output: Path, more: list[str]) -> pandas.DataFrame:
    """benchopt's rows: one for each look at each solver."""
    quiet = ["--no-plot", "--no-html", "--no-display", "--no-cache"]  # writes nothing here
    command = [sys.executable, "-m", "benchopt", "run", HERE, "-n", "300", "-r", "1"]
    subprocess.run([*command, *quiet, "--output", output, *more], check=True)
    return pandas.read_parquet(output)


def table(rows: pandas.DataFrame, gap: float) -> pandas.DataFrame:
    """Iterations and seconds until f is within `gap` of the way from the start to the lowest."""
    found = []
    for (data, objective), group in rows.groupby(["dataset_name", "objective_name"]):
        value = group["objective_value"]
        target = value.min() + gap * (value.max() - value.min())
        for solver, own in group.groupby("solver_name"):
            there = own[own["objective_value"] <= target].sort_values("stop_val").head(1)
            found.append(
                {
                    "data": data,
                    "objective": objective,
                    "solver": solver,
                    "iterations": int(there["stop_val"].iloc[0]) if len(there) else None,
                    "seconds": round(there["time"].iloc[0], 4) if len(there) else None,
                    "lowest": own["objective_value"].min(),
                }
            )
    return pandas.DataFrame(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gap", type=float, default=1e-6)
    chosen, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = run(Path(folder) / "rows.parquet", more)
    print(table(rows, chosen.gap).to_string(index=False))


if __name__ == "__main__":
    main()
