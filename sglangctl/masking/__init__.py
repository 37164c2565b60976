"""Takes secrets out of text, by value, by name or by shape. Nothing else decides what is a secret."""
