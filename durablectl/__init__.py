"""durablectl."""
