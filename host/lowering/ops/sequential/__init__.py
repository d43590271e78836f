"""Operations that are no tensor expressions: each step of their loops follows from the one before."""
