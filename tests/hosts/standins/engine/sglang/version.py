"""The version that this stand-in plays; the wheel builder writes another one here."""

__version__ = "0.5.23+standin"
