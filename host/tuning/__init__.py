"""Tuning: proposals, measurements on the device and training in one loop. See docs/tuning.md."""
