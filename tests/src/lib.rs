//! Real processes to test against: a [`Site`] is a server, its workers, and their folders.
//!
//! A test starts what it needs from the one binary, talks to it through the command line or the
//! REST client as a user would, kills or stops any process by its pid, and waits for conditions with
//! a deadline. What tasks really did is told by the tasks themselves, in a [`witness`] file that
//! Belfry knows nothing of.
//!
//! # Always true
//! - Only processes that a site started are ever signalled, each by its pid.
//! - A site that is dropped leaves no process and no file; after a failure it prints the last lines
//!   of every log first.
//! - Nothing sleeps for a time: [`until`] waits for a condition, and says what it waited for.
//!
//! A storm of faults is written down by a [`Recorder`] as it happens; a [`story`] is that, what the
//! tasks told, and what the store holds in the end, in the one format that the checker judges.

mod cli;
mod clock;
mod crash;
mod deadline;
pub mod diagram;
mod disk;
pub mod language;
pub mod modules;
pub mod network;
pub mod pages;
pub mod process;
mod program;
pub mod proxy;
mod recorder;
mod server;
mod sessions;
mod site;
pub mod story;
pub mod witness;
mod worker;

pub use store::suite::{cluster, pair, pooler};

pub use cli::Ran;
pub use clock::MovedClock;
pub use crash::CrashOrders;
pub use deadline::{glance, until, within};
pub use disk::SmallDisk;
pub use process::Pid;
pub use program::{belfry, repository};
pub use recorder::Recorder;
pub use server::Server;
pub use sessions::SessionKiller;
pub use site::Site;
pub use witness::Witness;
pub use worker::{Road, Role, Worker};
