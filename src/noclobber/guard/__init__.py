"""What an agent saw, what it may write, and the way of a call: facts, policies, commit, record, answer."""
