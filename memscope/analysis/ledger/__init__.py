"""The ledger: every byte of a device, in the line of who took it."""
