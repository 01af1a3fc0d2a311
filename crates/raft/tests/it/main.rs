//! Tests of the public parts of the crate.

mod log_suite;
mod machine;
mod restarting;
