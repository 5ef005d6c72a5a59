//! The PostgreSQL store, with the caller's writes in the same transaction.
