//! The core of the supervisor on virtual time, through its public face only.

#![allow(clippy::unwrap_used, reason = "the vocabulary of tests fails as tests do")]

mod leases;
mod properties;
mod shell;
mod stops;
