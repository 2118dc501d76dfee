"""The only folder that talks to the operating system about users' files."""
