//! Scenarios: small plans, and what is to come of them.

#![expect(clippy::unwrap_used, reason = "all of this crate is tests, their helpers too")]

mod luck;
mod overloads;
mod pictures;
mod rules;
mod scenario;
mod whatif;
mod workflows;
