"""Looking at runs and sessions from outside: frames of aggregates each second, pages of tasks, the page in a browser, metrics."""
