"""Follows one run, turns observations into journal events. The only writer of start journals."""
