"""Attacks: each is an exploit that worked once, or a variation of one."""
