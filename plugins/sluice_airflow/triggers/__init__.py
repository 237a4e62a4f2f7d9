"""Triggers: what deferred tasks wait for."""
