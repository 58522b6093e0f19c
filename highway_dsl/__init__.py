"""highway_dsl."""
