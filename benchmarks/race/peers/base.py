"""What the race knows of a solver that is not ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util

from race.counted import Array, Counted

Observe = Callable[[Array], None]
"""Called with every iterate; raises `Enough` where the run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A solver and its setting.

    Args:
        solve: runs it from a start, and returns why it ended if it does so by itself.
        setting: all that its result depends on, besides the version of its package.
        package: as the package index names it.
        module: as it is imported.
        products: whether it makes Hessian-vector products.
    """

    solve: Callable[[Counted, Array, Observe], str]
    setting: str
    package: str
    module: str
    products: bool = False

    @property
    def installed(self) -> bool:
        """Whether it can run here."""
        return util.find_spec(self.module) is not None

    def described(self) -> str:
        """The setting with the version."""
        version = metadata.version(self.package) if self.installed else "not installed"
        return f"{self.setting}, {self.package} {version}"
