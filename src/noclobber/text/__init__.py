"""Pure functions on text and bytes: no disk, no clock, no state."""
