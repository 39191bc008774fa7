"""What Prometheus sees: metrics are declared once, each replica exports its own, the application lists the replicas."""
