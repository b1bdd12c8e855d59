"""Operations on many files of a session at once: load and dump, collectives, shuffle, comparison, reduction."""
