//! Inputs on their way from the lanes to the engine.
//!
//! Beats go first, then what workers report, then requests; a batch takes a bounded number of the
//! latter two, and the lanes hold back the rest. A call that makes the engine fail costs the ownership,
//! and what it was about is remembered.

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{Engine, Input, Now};
use tokio::sync::mpsc::error::TryRecvError;

use super::{BATCH_INPUTS, End, Reign};
use crate::node::backoff::Cause;
use crate::node::suspects::Suspect;
use crate::node::{Beat, FromWorker, Request, RequestError, is_new_work};

impl Reign<'_> {
    /// Takes what is in the lanes already, beats first. Returns whether nothing is left
    /// of what has to be decided before the end.
    pub(super) fn take_waiting(&mut self) -> Result<bool, End> {
        let mut closed = true;
        loop {
            match self.life.driver.beats.try_recv() {
                Ok(beat) => self.take_beat(beat)?,
                Err(error) => {
                    closed &= self.hands_over || error == TryRecvError::Disconnected;
                    break;
                }
            }
        }
        let now = self.now();
        while self.taken < BATCH_INPUTS {
            match self.life.driver.reports.try_recv() {
                Ok(message) => self.take_report(now, message)?,
                Err(error) => {
                    closed &= self.hands_over || error == TryRecvError::Disconnected;
                    break;
                }
            }
        }
        while self.taken < BATCH_INPUTS {
            match self.life.driver.requests.try_recv() {
                Ok(request) => self.take_request(now, request)?,
                Err(error) => {
                    closed &= self.hands_over || error == TryRecvError::Disconnected;
                    break;
                }
            }
        }
        Ok(closed && self.taken < BATCH_INPUTS)
    }

    /// The clock is read for each beat once that is here. A time from before it came may be from before it
    /// was sent, however short the code between: the thread may have stood still there. The lease would
    /// then end here before it ends on the worker.
    pub(super) fn take_beat(&mut self, beat: Beat) -> Result<(), End> {
        let now = self.now();
        self.outboxes.beats_from(beat.session, beat.grants);
        self.handle(now, beat.input)
    }

    pub(super) fn take_report(&mut self, now: Now, message: FromWorker) -> Result<(), End> {
        match message {
            FromWorker::Join { join, outbox } => {
                self.taken += 1;
                self.outboxes.open(join.worker, join.session, outbox);
                self.handle(now, Input::Join(join))
            }
            FromWorker::Inputs(inputs) => {
                self.taken += inputs.len();
                inputs.into_iter().try_for_each(|input| self.take_input(now, input))
            }
        }
    }

    fn take_input(&mut self, now: Now, input: Input) -> Result<(), End> {
        if let Input::Disconnect { session, .. } = &input {
            self.outboxes.close(*session);
        }
        self.handle(now, input)
    }

    pub(super) fn take_request(&mut self, now: Now, request: Request) -> Result<(), End> {
        self.taken += weight(&request.input);
        let new_work = is_new_work(&request.input);
        // What waits for space keeps everything else waiting, too.
        if self.life.full && (new_work || self.waits_for_space) {
            request.refuse(RequestError::Full);
            return Ok(());
        }
        if self.life.suspects.is_barred(&Suspect::of(&request.input)) {
            request.refuse(RequestError::Poisoned);
            return Ok(());
        }
        self.life.tickets.wait(request.ticket, request.reply, self.batch, new_work);
        self.handle(now, request.input)
    }

    /// Gives an input to the engine. One that made it fail before is set aside.
    pub(super) fn handle(&mut self, now: Now, input: Input) -> Result<(), End> {
        let suspect = Suspect::of(&input);
        if self.life.suspects.is_barred(&suspect) {
            tracing::error!(?suspect, "an input was set aside: handling it failed before");
            self.life.driver.config.metrics.set_aside(1);
            return Ok(());
        }
        self.guarded(suspect, |engine| engine.handle(now, input))
    }

    /// Calls the engine. A defect in it costs the ownership, not the process.
    pub(super) fn guarded<T>(
        &mut self,
        suspect: Suspect,
        call: impl FnOnce(&mut Engine) -> T,
    ) -> Result<T, End> {
        let engine = &mut self.engine;
        catch_unwind(AssertUnwindSafe(|| call(engine))).map_err(|_| {
            tracing::error!(?suspect, "the engine failed; it is dropped and loaded again");
            self.life.suspects.accuse(suspect);
            self.life.driver.config.metrics.engine_panicked();
            End::Again { tainted: false, cause: Cause::Failed }
        })
    }
}

/// How much an input counts against [`BATCH_INPUTS`].
fn weight(input: &Input) -> usize {
    match input {
        Input::Submit { jobs, .. } => jobs.len(),
        _ => 1,
    }
}
