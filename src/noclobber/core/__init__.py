"""Values, clock, options and the JSON that leaves the library. Imports nothing of ours but `errors`."""
