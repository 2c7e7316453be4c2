"""Memory that libraries other than torch take on the device, by name."""
