"""Every attack runs, at a small share of its trials, and loses nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from attacks.run import ATTACKS, main, table
from attacks.tally import Tally


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_loses_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--effort", "0.01"]) == 0, capsys.readouterr().out


def test_a_loss_is_shown_and_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        @staticmethod
        def attack(seed: int, effort: float) -> list[Tally]:
            return [Tally("a broken thing", survived=2, lost=[f"seed {seed} lost it"])]

    monkeypatch.setattr("attacks.run.import_module", lambda name: Broken)
    monkeypatch.setattr("attacks.run.ATTACKS", ("broken",))
    assert main(["--seed", "3"]) == 1
    printed = capsys.readouterr().out
    assert "LOST, a broken thing: seed 3 lost it" in printed
    assert printed.splitlines()[-1].split() == ["in", "all", "3", "0", "2", "1"]


def test_table_sums_its_columns() -> None:
    last = table([Tally("one", refused=1, survived=2), Tally("two", survived=3)]).splitlines()[-1]
    assert last.split() == ["in", "all", "6", "1", "5", "0"]
