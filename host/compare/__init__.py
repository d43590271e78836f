"""Engines and variants of one model beside each other on a device: verified, measured in turn, decided."""
