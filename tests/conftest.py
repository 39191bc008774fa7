"""Settings of the whole suite."""

import os

# Before torch loads OpenMP, here and in the replicas that tests start: threads that spin starve their neighbours.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # on a machine that runs tests, other processes always want the cores

from hypothesis import settings

# Deadlines measure wall-clock time, which on a shared machine says nothing about the code.
settings.register_profile("prove", deadline=None)
settings.load_profile("prove")
