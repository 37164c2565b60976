"""What can be told of one engine: its status, whether it is ready, a bundle of evidence."""
