//! Sends and receives copies of a machine.
//!
//! ```text
//! sender                                        receiver
//!   copy the machine into a file
//!   offer: position, length, SHA-256     ──>    which of it is here already? ──> offset
//!   pieces of it from there, paced       ──>    append to `incoming`
//!   done                                 ──>    verify, install
//! ```
//!
//! A broken transfer continues where it was interrupted, also after a restart of the receiver, as long as the sender has
//! [the same copy](crate::machine::copies). The receiver verifies everything before openraft hears of it.

mod receiver;
mod sender;

pub(crate) use receiver::Receiver;
pub(crate) use sender::send;

use std::io;

/// Runs file operations on a thread for them.
async fn blocking<T: Send + 'static, R: Send + 'static>(
    value: T,
    run: impl FnOnce(T) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    tokio::task::spawn_blocking(move || run(value)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
