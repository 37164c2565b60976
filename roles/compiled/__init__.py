"""What engines compile, kept on the controller and brought to hosts that would compile the same."""
