"""Columns of a planned pod."""

POD_CLASS, NODE, DEVICES = range(3)
