"""Other systems doing the same work on the same server, so that a budget that names one of them can be judged."""
