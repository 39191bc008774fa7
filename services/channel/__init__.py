"""Framed TCP between Router and replicas: the hot path of a cycle, which a Serve handle is too slow for."""
