"""Operations that only move elements."""
