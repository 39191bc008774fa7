"""A Router's sessions on replicas: leases, the two-model cycle over them, and what heals a loss."""
