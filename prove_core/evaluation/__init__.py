"""Measurements of models: the AR-matching prefix of a block proposer."""
