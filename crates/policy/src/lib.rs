//! What clients may do at which server, decided by Cedar policies.
