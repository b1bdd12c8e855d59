"""The run engine as pure machines: submitter, dispatchers, workers, file location, membership."""
