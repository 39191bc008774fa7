"""What runs in a replica: the deployment's class around an engine, its ranks, its health."""
