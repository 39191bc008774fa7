"""Which replica a session goes to: what replicas report, what this Router has placed, and a rule over both."""
