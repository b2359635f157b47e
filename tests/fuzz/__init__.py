"""Coverage-guided fuzzing: a harness a module, each with ``SEEDS`` and ``try_one(data)``, which raises for a bug.

``make fuzz`` runs them for as long as one likes; the tests run each for a moment.
"""
