"""The `durable` command. It imports the runtime only when a verb needs it, so that help is there at once."""
