"""Memory that libraries other than torch allocate on the device, by library. Opt-in."""
