"""What the commands do: one file a command or table."""
