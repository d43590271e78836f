"""Plans of whole models beside each other."""
