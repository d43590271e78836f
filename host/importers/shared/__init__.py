"""Operations that several formats have, as expressions of relax."""
