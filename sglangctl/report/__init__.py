"""What `status`, `verify`, `wait` and `bundle` say about one engine."""
