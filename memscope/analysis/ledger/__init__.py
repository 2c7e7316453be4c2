"""The ledger: every byte of a device, and who holds it."""
