"""What can be told of a shell command."""
