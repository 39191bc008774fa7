"""Who may use the API."""
