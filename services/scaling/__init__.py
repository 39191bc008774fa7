"""How many replicas each role has: what they report, a rule over it, and Serve's autoscaler around the rule."""
