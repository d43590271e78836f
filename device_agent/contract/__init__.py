"""What the host and the device agent share: bounds, strict parsing, text that is safe to show, bundles.

The host imports this package and nothing else of the device agent (docs/decisions/0009). It keeps to Python
3.8 and the standard library. The native executor has the same rules in C++, and the same bounds out of
`limits.json`.
"""
