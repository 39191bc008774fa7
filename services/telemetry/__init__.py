"""Following one request: its id, logs that carry it, and traces."""
