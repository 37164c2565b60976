"""Settings of all unit tests."""

from hypothesis import settings

# An example's time says how busy the machine is, and nothing of the code: two engines' tests at
# once have made one of 0.8 ms take 0.5 s.
settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")
