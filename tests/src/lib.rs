//! Test harness with real processes: a [`Site`] consists of a server, its workers, and their folders.
//!
//! A test starts what it needs from the one binary and uses it through the command line or the REST client, as a user
//! would. It kills or stops any process by its pid, and waits for conditions with a deadline. The tasks themselves
//! record what they did in a [`witness`] file that Belfry does not use.
//!
//! # Invariants
//! - Only processes that a site started receive signals, each by its pid.
//! - A dropped site leaves no process and no file. After a failure it first prints the last lines of every log.
//! - No test sleeps for a fixed time: [`until`] waits for a condition, and its failure names the condition.
//!
//! During a fault injection test, a [`Recorder`] records faults and requests as they happen. A [`story`] combines its
//! record with the lines of the tasks and the final rows of the store, in the format that the checker judges.

mod cli;
mod clock;
mod container_engine;
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
pub use container_engine::ContainerEngine;
pub use crash::CrashOrders;
pub use deadline::{poll_pause, until, within};
pub use disk::SmallDisk;
pub use process::{NextPid, Paused, Pid};
pub use program::{belfry, repository};
pub use recorder::Recorder;
pub use server::{Membership, Server};
pub use sessions::SessionKiller;
pub use site::Site;
pub use witness::Witness;
pub use worker::{Connection, Role, Worker};
