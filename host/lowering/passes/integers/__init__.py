"""Passes that bring quantised contractions into integer arithmetic."""
