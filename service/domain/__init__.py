"""The pure middle: rules as functions over values. No I/O, no clock, no randomness, no third-party import."""
