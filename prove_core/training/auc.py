"""Area under the ROC curve: how well a score puts the right above the wrong."""

from collections.abc import Sequence

import numpy as np

from prove_core.errors import DataError


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """P(score of a right one > score of a wrong one), ties counted half (Mann and Whitney's statistic).

    Raises DataError unless there are both right and wrong ones.
    """
    right = np.asarray(labels, dtype=bool)
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        raise DataError(f"AUC needs right and wrong candidates; of {len(right)}, {positives} are right")
    _, inverse, counts = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of tied scores the mean of their ranks
    return float((ranks[inverse][right].sum() - positives * (positives + 1) / 2) / (positives * negatives))
