"""Scripted opponents of graded strength: trivial, easy, medium, hard, expert, progressive."""
