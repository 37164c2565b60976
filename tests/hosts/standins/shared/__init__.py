"""What the stand-ins of both engines share. Standard library only; copied next to each."""
