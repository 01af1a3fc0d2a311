//! Suspension: the leadership lease is not valid for certain, and nobody may have taken over yet.
//!
//! The store did not confirm the lease in time: it is slow, or this server is cut off from it. Another server may lead
//! from now on. So this server is not ready, closes its sessions, renews no worker lease and releases no effect without
//! a commit. It keeps its engine and its in-flight commits, because the next successful renewal proves that no other
//! server took the shards, and ends the suspension. A commit that succeeds meanwhile is durable, so its clients are
//! answered.

use std::time::Duration;

use engine::Input;
use tokio::time::Instant;

use super::super::driver::refuse_all;
use super::{End, Event, Reign, answered, fly};
use crate::node::Readiness;
use crate::node::backoff::Cause;

/// Longest suspension, in lease lengths. After it, waiting clients are told that the outcome is unknown, and the server
/// acquires the shards again when the store is back.
const LENGTHS_MAX: u32 = 4;

impl Reign<'_> {
    /// Suspends leadership until the lease is valid again, or ends it.
    pub(super) async fn suspend(&mut self) -> Result<(), End> {
        tracing::warn!("leadership is suspended: the store did not confirm the lease in time");
        let (since, config) = (Instant::now(), &self.life.driver.config);
        config.metrics.leadership_suspended();
        let longest = since + config.lease.to_std() * LENGTHS_MAX;
        // What is only asked beside the commits would hold its session for as long as the store hangs.
        (self.probe, self.reconciled) = (None, None);
        if self.stop_by.is_none() {
            self.life.driver.readiness.send_replace(Readiness::Suspended);
        }
        for (worker, session) in self.outboxes.close_all() {
            self.closed.push(Input::Disconnect { worker, session });
        }
        self.disconnect_closed()?;
        while !self.lease_is_valid() {
            // A server that stops waits for its commits only.
            if self.stop_by.is_some() && self.flights.is_empty() {
                return Err(self.given_up());
            }
            let event = self.wait_suspended(self.stop_by.unwrap_or(longest).min(longest)).await?;
            self.take(event)?;
        }
        let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(millis, "leadership is resumed: no other server had taken over");
        self.announce();
        Ok(())
    }

    /// Waits for the store; refuses requests and closes new sessions meanwhile.
    async fn wait_suspended(&mut self, give_up_at: Instant) -> Result<Event, End> {
        self.renew_when_due();
        let renewal_due = match self.renewal {
            Some(_) => give_up_at,
            None => self.renewal_due(),
        };
        let open = self.stop_by.is_none();
        let driver = &mut self.life.driver;
        let lanes = (&mut driver.requests, &mut driver.reports, &mut driver.beats);
        let event = tokio::select! {
            biased;
            result = fly(&mut self.flights) => Some(Event::Committed(result)),
            result = answered(&mut self.renewal) => Some(Event::Renewed(result)),
            _ = driver.stop.wait_for(|stop| *stop), if open => Some(Event::Stop),
            () = tokio::time::sleep_until(give_up_at) => None,
            () = tokio::time::sleep_until(renewal_due.max(Instant::now() + Duration::from_millis(1))) => {
                Some(Event::Nothing)
            }
            never = refuse_all(lanes.0, lanes.1, lanes.2) => match never {},
        };
        event.ok_or_else(|| self.given_up())
    }

    fn given_up(&self) -> End {
        tracing::warn!("leadership ends: the store has not confirmed the lease");
        match self.stop_by {
            None => End::Again { tainted: true, cause: Cause::Away },
            Some(_) if self.hands_over => End::HandedOver,
            Some(_) => End::Stopped,
        }
    }
}
