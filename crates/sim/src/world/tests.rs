//! Worlds as a whole.
