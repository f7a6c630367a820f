"""Ratings, leagues and matches between any policies and scripted opponents."""
