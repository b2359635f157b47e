"""webhookd: job events in, signed webhooks out."""

__version__ = "0.1.0"
