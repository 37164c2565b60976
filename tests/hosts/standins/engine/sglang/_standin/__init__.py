"""How the stand-in works. Nothing here exists in the real engine."""
