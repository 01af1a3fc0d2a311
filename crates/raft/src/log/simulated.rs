//! A log without a thread, for simulations on virtual time.
//!
//! A request is served at once, but answered after a random time, like one of a slow disk.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::OpenError;
use super::thread::{Done, Request, Session};
use super::{Log, Options, Thread, open_session};
use crate::disk::Disk;
use crate::disk::sim::Luck;

/// Serves the requests of a log.
#[derive(Debug)]
pub(super) struct Simulated {
    session: Session,
    luck: Luck,
}

/// Most syncs take no time, some much.
fn latency(luck: &mut Luck) -> Duration {
    let millis = match luck.next() >> 60 {
        0..=9 => 0,
        10..=14 => (luck.next() >> 32) % 10,
        _ => (luck.next() >> 32) % 120,
    };
    Duration::from_millis(millis)
}

impl Simulated {
    fn delayed(&mut self, done: Done) -> Done {
        let latency = latency(&mut self.luck);
        if latency.is_zero() {
            return done;
        }
        Box::new(move |result| {
            tokio::spawn(async move {
                tokio::time::sleep(latency).await;
                done(result);
            });
        })
    }

    pub(super) fn serve(&mut self, request: Request) {
        let request = match request {
            Request::Append(records, done) => Request::Append(records, self.delayed(done)),
            Request::SaveVote(vote, done) => Request::SaveVote(vote, self.delayed(done)),
            Request::Truncate(from, done) => Request::Truncate(from, self.delayed(done)),
            other => other,
        };
        self.session.serve(std::iter::once(request));
        while self.session.prepare() {}
    }
}

impl Log {
    /// Opens a log that has no thread.
    pub(crate) fn open_simulated(
        disk: Arc<dyn Disk>,
        options: Options,
        luck: Luck,
    ) -> Result<Self, OpenError> {
        let (session, shared) = open_session(disk, options)?;
        let simulated = Some(Mutex::new(Simulated { session, luck }));
        Ok(Self { shared, thread: Thread { requests: None, handle: None, simulated } })
    }
}
