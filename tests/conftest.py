"""Settings of the whole suite."""

from hypothesis import settings

# Deadlines measure wall-clock time, which on a shared machine says nothing about the code.
settings.register_profile("prove", deadline=None)
settings.load_profile("prove")
