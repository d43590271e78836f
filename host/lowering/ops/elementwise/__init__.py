"""Operations whose elements follow from one element of each input."""
