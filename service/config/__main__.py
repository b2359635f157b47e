"""``python -m service.config > service/SETTINGS.md``: the settings reference."""

from __future__ import annotations

import sys

from service.config.reference import render_reference

sys.stdout.write(render_reference())
