//! Scenarios: small plans with their expected forecasts.

#![expect(clippy::unwrap_used, reason = "this crate has only tests and their helpers")]

mod luck;
mod overloads;
mod pictures;
mod rules;
mod scenario;
mod services;
mod whatif;
mod workflows;
