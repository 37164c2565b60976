"""What a run did and found out, kept on the controller."""
