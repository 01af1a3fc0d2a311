//! Alerts: rules, the state of alerts, notifications, and monitors. Deterministic, no I/O.
//!
//! The leader reads the feed of committed events and passes it to [`Alerts`], which evaluates the rules. Changed rows are
//! written in one transaction with the position in the feed, so no event is evaluated twice, and none is lost with a
//! server. Only then are notifications delivered.
//!
//! ```text
//!  events of the feed ──needs──> jobs to read              (the caller reads their rows)
//!  events and jobs ────observe──┐
//!  time, queues ───────advance──┼─> Alerts ──take──> rows ──> store ──> deliveries ──> channels
//!  requests of users ───────────┘      ^                                                  │
//!                                      └──────────────────── delivered ──────────────────┘
//! ```
//!
//! # Terms
//! - A *rule* has a condition and selects objects. An *alert* is a rule whose condition is met for one *subject*: all jobs of
//!   a name, a workflow, a schedule, a service, a worker or a queue.
//! - A *channel* is where notifications go. A *notification* is a message about alerts of one rule to one channel.
//! - A *silence* holds notifications back for a time, or in recurring *periods*.
//! - A *monitor* expects *pings* of a job that Belfry does not run (a dead-man's switch). A ping is an HTTP request, and no
//!   event of the feed: the caller passes it to [`Alerts::ping`].
//!
//! # Rules of notifications
//! 1. The first alert of a rule is notified at once. Further ones within a minute ([`limits::GROUP_INTERVAL`]) are gathered in
//!    one notification, which names at most [`LISTED_MAX`] of them and the number of all. So the number of messages is
//!    bounded, however many jobs fail.
//! 2. A notification is repeated after `repeat_every`: of a failure when it occurs again, and of a state, such as a paused
//!    schedule, while it lasts. Not while the alert is acknowledged.
//! 3. An alert that is not acknowledged for `escalate.after` is *escalated*: further channels are notified of it, once at
//!    that time, and then as the others. The time counts from the first notification, so a silence holds it back too.
//! 4. A channel gets one message at a time, those of a rule in order, and a bounded number each minute. A failed delivery is
//!    repeated with growing delays for a day ([`limits::DELIVERY_TIME_MAX`]), with the same number as idempotency key.
//!
//! # Rules of monitors
//! 1. A monitor is *new* until a ping reports a success. Then it expects the next success after its period, or at the
//!    next time of its cron expression. It is *late* from then on, and *down* after its grace time.
//! 2. A ping that reports a failure takes it down at once; only a success ends that. A ping that the job has started
//!    replaces the expectation: the monitor is down if the job does not end within its longest run time. Further such
//!    pings do not extend that, because a job that crashes after its start sends them too.
//! 3. No server receives pings during an outage or a takeover. So a load takes no monitor down for
//!    [`limits::LOAD_GRACE`]: clients that repeat their pings are heard first.
//! 4. *Down* is stored, because a restart must not change it. *Late* follows from the time.
//!
//! # Invariants
//! - At most one open alert for a rule and a subject.
//! - An event changes state only if its position is after that of the last event. Changes of state, notifications
//!   and the position are written together.
//! - All counts, lists and histories are bounded; see [`limits`].
//!
//! # Files
//! - `state`: the state and its rows; `rows`: their stored form; `limits`: bounds; `timer`: timers.
//! - `observe`: evaluation of rules; `watch` and `live`: late and slow jobs; `services`: degraded services and rollouts; `facts`: what rules need beyond events; `index`: which
//!   rules watch an object; `glob`: patterns of names.
//! - `monitors`: monitors and their pings.
//! - `occurrence`: how an alert opens and is resolved; `notify` and `line`: notifications and
//!   deliveries.
//! - `silences`: silences, quiet hours and maintenance windows.
//! - `requests`: changes by users; `lists`: what the API shows.
//! - [`message`]: what a notification says; [`target`]: the request of each kind of channel; `texts`: both
//!   languages; `clean`: untrusted text.

mod clean;
mod facts;
mod glob;
mod index;
pub mod limits;
mod line;
mod lists;
mod live;
pub mod message;
mod monitors;
mod notify;
mod observe;
mod occurrence;
mod requests;
mod rows;
mod services;
mod silences;
mod state;
pub mod target;
mod texts;
mod timer;
mod watch;

#[cfg(test)]
mod tests;

pub use facts::{Facts, JobFacts, Sample};
pub use lists::{AlertFilter, NotificationFilter};
pub use live::{LiveJob, Phase};
pub use notify::{Attempt, Due};
pub use requests::Refusal;
pub use rows::{ChannelRecord, PingToken, Row, RuleRecord, Unreadable};
pub use state::Alerts;
pub use watch::WATCHED_PER_CALL;
