"""What the drivers of all families share of talking to a firmware: command channels, and the ledger of what it gave."""
