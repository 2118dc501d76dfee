"""The adapters inside the real agent frameworks, each driven by its own scripted model. README.md has more."""
