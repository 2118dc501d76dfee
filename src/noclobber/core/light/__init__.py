"""Stand-ins for parts of the standard library that are slow to import. A hook is a process per tool call."""
