"""Runs things: protocols, cells, training with OpenRLHF, evaluation with lm-eval, records."""
