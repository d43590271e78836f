"""How good proposed programs are, beside a search that measured hundreds: `sdk tlm evaluate`."""
