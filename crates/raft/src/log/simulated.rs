//! A log without a thread, for simulations on virtual time.
//!
//! A request is served at once, but it may be answered later, like one of a slow disk.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::error::OpenError;
use super::thread::{Done, Request, Session};
use super::{Log, Options, Thread, open_session};
use crate::disk::Disk;
use crate::disk::sim::Luck;

/// When requests are answered.
#[derive(Debug)]
pub(crate) struct Slowness {
    /// Draws the time of each request; without it, they take no time.
    pub(crate) luck: Option<Luck>,
    /// Requests are not answered while this is set.
    pub(crate) hold: watch::Receiver<bool>,
}

/// Serves the requests of a log.
#[derive(Debug)]
pub(super) struct Simulated {
    session: Session,
    slowness: Slowness,
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
        let Slowness { luck, hold } = &mut self.slowness;
        let latency = luck.as_mut().map_or(Duration::ZERO, latency);
        if latency.is_zero() && !*hold.borrow() {
            return done;
        }
        let mut hold = hold.clone();
        Box::new(move |result| {
            tokio::spawn(async move {
                // An error says that the test no longer holds anything.
                let _ = hold.wait_for(|hold| !hold).await;
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
        slowness: Slowness,
    ) -> Result<Self, OpenError> {
        let (session, shared) = open_session(disk, options)?;
        let simulated = Some(Mutex::new(Simulated { session, slowness }));
        Ok(Self { shared, thread: Thread { requests: None, handle: None, simulated } })
    }
}
