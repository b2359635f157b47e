"""The dashboards as data: ``python -m grafana.build`` writes ``grafana/dashboards/*.json``; CI compares them.

Belongs here: what is shown. Does not belong here: alert rules (``grafana/alerts``), which Prometheus reads as they are.
"""
