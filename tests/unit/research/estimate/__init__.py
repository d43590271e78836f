"""Tests of learned estimates."""
