//! Alerts: the state of the leader, and deliveries, around the core in the crate `alerts`.
//!
//! `alert_feed` follows the feed of events and calls the core; the API passes changes of users.
//!
//! - [`service`]: the state of the leader, its writes, and changes by users.
//! - `deliver`: sends messages by HTTP and SMTP, only to addresses that [`crate::networks`] allows.
//! - `pings`: pings of monitors, which are recorded in batches.
//!
//! # Invariants
//! - A notification is delivered only after its alert is durable.
//! - Secrets of channels are in plain text only in memory, while a request or a delivery needs them.

mod deliver;
mod pings;
pub mod service;

pub use pings::PingedMonitor;
pub use service::{AlertError, AlertService};
