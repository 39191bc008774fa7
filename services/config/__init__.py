"""One YAML file: what it may say, how it is read, and what is checked before anything starts."""
