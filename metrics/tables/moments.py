"""Mean and variance of values that several tasks have: each counts its own, and the moments of all are added up."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Moments:
    """How many values there are, their mean, and the sum of the squares of what they differ from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Self:
        if not len(values):
            return cls()
        mean = float(values.mean())
        return cls(len(values), mean, float(np.square(values - mean).sum()))

    def __add__(self, other: "Moments") -> "Moments":
        """Of both together (Chan, Golub, LeVeque 1979)."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * self.count * other.count / count
        return Moments(count, self.mean + apart * other.count / count, squares)

    @property
    def std(self) -> float | None:
        """The standard deviation of the sample; None of fewer than two."""
        return float(np.sqrt(self.squares / (self.count - 1))) if self.count > 1 else None
