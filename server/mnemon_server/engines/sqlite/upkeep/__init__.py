"""Operations on a records.db without serving from it: verification, and replacing its vectors."""
