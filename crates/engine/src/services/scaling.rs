//! Automatic scaling: the desired number of replicas follows schedules and metrics.
//!
//! ```text
//! readings ──needed──> highest number ──windows──> stabilized number ──minimum, maximum──> desired number
//! ```
//!
//! [`Scaler`] decides, as a pure state machine on virtual time. It has the algorithm of the Horizontal Pod Autoscaler of
//! Kubernetes: `ceil(value / target)` replicas, a tolerance, and a stabilization window for each direction. The engine counts
//! waiting jobs itself. The server reads all other metrics, and sends their values as [`MetricReading`]s.
//!
//! # Invariants
//! - The number is between the minimum that applies and the maximum.
//! - A metric without a current reading never reduces the number. So a new leader reduces nothing before it has readings,
//!   and nothing before a window has passed.
//!
//! # Cost
//! O(metrics + recommendations of a window), every [`INTERVAL`].

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::record::ServiceEvent;
use model::service::{Scaling, ScalingCause, ScalingChange, ScalingMetric};
use model::{Duration, ServiceId, Timestamp};
use mutation::{Mutation, is_on};
use timetable::{Next, Timetable, Zones};

use super::{Service, Services};
use crate::context::Context;
use crate::input::MetricReading;
use crate::jobs::Jobs;

/// Time between two evaluations of metrics.
pub(crate) const INTERVAL: Duration = Duration::from_secs(15);
/// Age from which a reading no longer counts.
const READING_AGE_MAX: Duration = Duration::from_secs(60);
/// Deviation from the current number that changes nothing.
const TOLERANCE: f64 = 0.1;
/// How far the last time of a schedule may be in the past.
const SCHEDULE_REACH: Duration = Duration::from_secs(400 * 86_400);

/// Decides the number of replicas of one service.
#[derive(Debug)]
pub(super) struct Scaler {
    /// Times of each schedule.
    timetables: Vec<Option<Timetable>>,
    /// Newest value of each metric.
    readings: Vec<Option<(Timestamp, f64)>>,
    /// Why metrics have no value, by position.
    problems: Vec<(usize, Arc<str>)>,
    /// Numbers that the metrics asked for, within the longer window.
    recommended: VecDeque<(Timestamp, u32)>,
    /// When it decides next.
    due: Timestamp,
}

/// A number of replicas, and what determined it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Recommendation {
    pub(super) replicas: u32,
    pub(super) cause: ScalingCause,
    pub(super) value: Option<f64>,
}

impl Scaler {
    /// Creates a scaler that holds the current number for one window.
    pub(super) fn new(scaling: &Scaling, zones: &Zones, current: u32, now: Timestamp) -> Self {
        Self {
            // The server has validated them.
            timetables: scaling
                .schedules
                .iter()
                .map(|schedule| Timetable::of_cron(&schedule.cron, &schedule.zone, zones).ok())
                .collect(),
            readings: vec![None; scaling.metrics.len()],
            problems: Vec::new(),
            recommended: VecDeque::from([(now, current)]),
            due: now,
        }
    }

    /// Records the value of a metric; `None` if it could not be read.
    pub(super) fn read(&mut self, now: Timestamp, metric: usize, value: Option<f64>) {
        if let Some(reading) = self.readings.get_mut(metric) {
            *reading = value.filter(|value| value.is_finite()).map(|value| (now, value));
        }
    }

    /// Returns the minimum that applies at a time: that of the schedule with the latest time, or that of the service.
    pub(super) fn minimum(&self, scaling: &Scaling, now: Timestamp) -> u32 {
        let after = now - SCHEDULE_REACH;
        let last = |timetable: &Option<Timetable>| timetable.as_ref()?.last(after, now);
        let times = self.timetables.iter().map(last);
        let latest = times.zip(&scaling.schedules).filter_map(|(at, schedule)| Some((at?, schedule.min)));
        // Of two schedules with the same time, the one with the higher minimum.
        latest.max().map_or(scaling.min, |(_, min)| min).min(scaling.max)
    }

    /// Returns when the minimum may change next.
    fn next_schedule(&self, now: Timestamp) -> Option<Timestamp> {
        let next = |timetable: &Timetable| match timetable.next(now) {
            Next::At(at) => Some(at),
            _ => None,
        };
        self.timetables.iter().flatten().filter_map(next).min()
    }

    /// Decides the number of replicas.
    pub(super) fn decide(&mut self, scaling: &Scaling, current: u32, now: Timestamp) -> Recommendation {
        let next_metrics = (!scaling.metrics.is_empty()).then_some(now + INTERVAL);
        let next = [next_metrics, self.next_schedule(now)].into_iter().flatten().min();
        self.due = next.unwrap_or(now + SCHEDULE_REACH);
        let minimum = self.minimum(scaling, now);
        let asked = self.asked_by_metrics(scaling, current, now);
        let stabilized = match asked {
            Some(asked) => {
                let replicas = self.stabilize(scaling, asked.replicas, current, now);
                Recommendation { replicas, ..asked }
            }
            None => Recommendation { replicas: minimum, cause: ScalingCause::Minimum, value: None },
        };
        let limit = |replicas, cause| Recommendation { replicas, cause, ..stabilized };
        if stabilized.replicas > scaling.max {
            limit(scaling.max, ScalingCause::Maximum)
        } else if stabilized.replicas < minimum {
            limit(minimum, ScalingCause::Minimum)
        } else {
            stabilized
        }
    }

    /// Returns the highest number that a metric asks for; `None` without metrics.
    fn asked_by_metrics(&self, scaling: &Scaling, current: u32, now: Timestamp) -> Option<Recommendation> {
        let is_idle = self.others_ask_for_none(scaling, now);
        let metrics = scaling.metrics.iter().zip(&self.readings);
        let counted = metrics.filter(|(metric, _)| !(is_idle && metric.needs_replicas()));
        let asked = counted.map(|(metric, reading)| {
            let (cause, per_replica) = match metric {
                ScalingMetric::Queue(queue) => (ScalingCause::Queue, f64::from(queue.jobs_per_replica)),
                ScalingMetric::Query(query) => (ScalingCause::Query, query.per_replica),
                ScalingMetric::Cpu(cpu) => (ScalingCause::Cpu, f64::from(cpu.per_replica.0) / 1_000.0),
                ScalingMetric::Memory(memory) => (ScalingCause::Memory, memory.per_replica.0 as f64),
            };
            let value = reading.filter(|(at, _)| now.since(*at) <= READING_AGE_MAX).map(|(_, value)| value);
            // Without a value, it asks for the current number: other metrics may ask for more.
            let replicas = value.map_or(current, |value| needed(value, per_replica, current));
            Recommendation { replicas, cause, value }
        });
        // The first of equal ones.
        asked.reduce(|most, next| if next.replicas > most.replicas { next } else { most })
    }

    /// Returns whether there are metrics that do not need replicas, and all of them ask for none. Then the use of the replicas
    /// does not keep the last one: it is never exactly zero.
    fn others_ask_for_none(&self, scaling: &Scaling, now: Timestamp) -> bool {
        let metrics = scaling.metrics.iter().zip(&self.readings);
        let mut others = metrics.filter(|(metric, _)| !metric.needs_replicas()).peekable();
        let is_none = |(_, reading): (_, &Option<(Timestamp, f64)>)| {
            reading.is_some_and(|(at, value)| now.since(at) <= READING_AGE_MAX && value <= 0.0)
        };
        others.peek().is_some() && others.all(is_none)
    }

    /// Returns the number nearest to the current one that both windows allow.
    fn stabilize(&mut self, scaling: &Scaling, asked: u32, current: u32, now: Timestamp) -> u32 {
        let longest = scaling.up_window.max(scaling.down_window);
        self.recommended.retain(|(at, _)| now.since(*at) < longest);
        let within = |window: Duration| {
            let recent = self.recommended.iter().filter(move |(at, _)| now.since(*at) < window);
            recent.map(|(_, replicas)| *replicas).chain([asked])
        };
        // `asked` is in both windows, so the lower bound is not above the upper one.
        let (lower, upper) = (within(scaling.up_window).min(), within(scaling.down_window).max());
        let stabilized = current.max(lower.unwrap_or(asked)).min(upper.unwrap_or(asked));
        self.recommended.push_back((now, asked));
        stabilized
    }
}

/// Returns the number of replicas for a value.
fn needed(value: f64, per_replica: f64, current: u32) -> u32 {
    let ratio = value / per_replica;
    if current > 0 && (ratio / f64::from(current) - 1.0).abs() <= TOLERANCE {
        return current;
    }
    // Negative values need no replica; casts of floats saturate.
    ratio.ceil().max(0.0) as u32
}

impl Service {
    fn scaler(&mut self, scaling: &Scaling, zones: &Zones, now: Timestamp) -> &mut Scaler {
        let current = self.state.replicas;
        self.scaler.get_or_insert_with(|| Box::new(Scaler::new(scaling, zones, current, now)))
    }

    /// Returns when scaling decides next; never for a service that is being deleted.
    pub(super) fn scaling_due(&self) -> Option<Timestamp> {
        self.scaler.as_ref().filter(|_| !self.state.deleting).map(|scaler| scaler.due)
    }

    /// Returns the number of jobs that wait in a queue, without the replicas of the service.
    fn waiting_in(&self, queue: &str, jobs: &Jobs) -> u64 {
        let own = self.replicas.keys().filter(|job| jobs.waits_in(**job, queue)).count();
        jobs.waiting_in(queue).saturating_sub(u64::try_from(own).unwrap_or(u64::MAX))
    }
}

impl Services {
    /// Sets the desired number of replicas, if the service is scaled automatically and a decision is due.
    pub(super) fn scale_automatically(&mut self, cx: &mut Context, jobs: &Jobs, id: ServiceId) {
        let now = cx.now;
        let Some(service) = self.all.get_mut(&id).filter(|service| !service.state.deleting) else { return };
        let spec = Arc::clone(&service.head.spec);
        let Some(scaling) = spec.scaling.as_deref() else { return };
        if service.scaler(scaling, &cx.config.zones, now).due > now {
            return;
        }
        let queue = |(i, metric): (usize, &ScalingMetric)| match metric {
            ScalingMetric::Queue(queue) => Some((i, service.waiting_in(&queue.name, jobs) as f64)),
            _ => None,
        };
        let queues: Vec<_> = scaling.metrics.iter().enumerate().filter_map(queue).collect();
        let current = service.state.replicas;
        let scaler = service.scaler(scaling, &cx.config.zones, now);
        queues.into_iter().for_each(|(metric, waiting)| scaler.read(now, metric, Some(waiting)));
        let Recommendation { replicas: to, cause, value } = scaler.decide(scaling, current, now);
        if to == current || is_on(Mutation::EngineIgnoresScaling) {
            return;
        }
        if to > current {
            // The new replicas get the whole deadline.
            service.state.rollout.progressed_at = now;
        }
        service.state.replicas = to;
        service.state.scaled = Some(Box::new(ScalingChange { at: now, from: current, to, cause, value }));
        self.touch(id);
        self.emit(cx, id, ServiceEvent::Scaled);
        self.emit_availability(cx, id);
    }

    /// Records the values of metrics that the server has read, in one reading for each service and metric.
    pub(crate) fn read_metrics(&mut self, cx: &mut Context, readings: &[MetricReading]) {
        let mut read = BTreeSet::new();
        for MetricReading { service: id, metric: read_metric, value } in readings {
            let Some(service) = self.all.get_mut(id) else { continue };
            let spec = Arc::clone(&service.head.spec);
            let Some(scaling) = spec.scaling.as_deref() else { continue };
            let scaler = service.scaler(scaling, &cx.config.zones, cx.now);
            // The spec may have changed since the metric was read.
            for (i, _) in scaling.metrics.iter().enumerate().filter(|(_, metric)| *metric == read_metric) {
                scaler.read(cx.now, i, value.as_ref().ok().copied());
                scaler.problems.retain(|(metric, _)| *metric != i);
                if let Err(problem) = value {
                    scaler.problems.push((i, Arc::clone(problem)));
                }
            }
            scaler.due = scaler.due.min(cx.now);
            read.insert(*id);
        }
        for id in read {
            self.pending.insert(id);
            let Some(service) = self.all.get_mut(&id) else { continue };
            let problem = service.scaler.as_ref().and_then(|scaler| scaler.problems.iter().min());
            let problem = problem.map(|(metric, problem)| format!("`scaling.metrics[{metric}]`: {problem}"));
            if service.state.scaling_problem.as_deref() != problem.as_deref() {
                service.state.scaling_problem = problem.map(String::into_boxed_str);
                self.touch(id);
                self.emit(cx, id, ServiceEvent::Changed);
            }
        }
    }

    /// Returns the metrics of all services that the server must read.
    pub(crate) fn metrics_to_read(&self) -> Vec<(ServiceId, ScalingMetric)> {
        let scaled = self.all.iter().filter(|(_, service)| !service.state.deleting);
        let metrics = scaled.flat_map(|(&id, service)| {
            let metrics = service.spec().scaling.iter().flat_map(|scaling| &scaling.metrics);
            metrics.map(move |metric| (id, metric))
        });
        let is_read = |(_, metric): &(ServiceId, &ScalingMetric)| !matches!(metric, ScalingMetric::Queue(_));
        metrics.filter(is_read).map(|(id, metric)| (id, metric.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::service::QueueMetric;
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_value_needs_its_share_of_replicas_rounded_up() {
        for (value, current, expected) in [
            (0.0, 0, 0),
            (1.0, 0, 1),
            (250.0, 0, 3),
            (300.0, 3, 3),
            (329.0, 3, 3),
            (331.0, 3, 4),
            (271.0, 3, 3),
            (269.0, 3, 3),
            (199.0, 3, 2),
            (-5.0, 3, 0),
            (1e300, 3, u32::MAX),
        ] {
            assert_eq!(needed(value, 100.0, current), expected, "{value} with {current}");
        }
    }

    proptest! {
        /// For any values, and with readings that fail: the number is within the limits, it follows a constant value
        /// after the windows, and it is never reduced faster than the window allows.
        #[test]
        fn the_number_is_within_its_limits_and_never_below_the_window(
            values in prop::collection::vec(prop::option::of(0.0..50.0f64), 1..80),
            min in 0u32..4,
            more in 1u32..20,
            up in 0u64..60,
            down in 0u64..120,
        ) {
            let metrics = vec![ScalingMetric::Queue(QueueMetric { name: "q".into(), jobs_per_replica: 2 })];
            let scaling = Scaling {
                min,
                max: min + more,
                schedules: Vec::new(),
                metrics,
                up_window: Duration::from_secs(up),
                down_window: Duration::from_secs(down),
            };
            let mut current = min;
            let mut scaler = Scaler::new(&scaling, &Zones::bundled(), current, at(0));
            let mut asked: Vec<(u64, u32)> = Vec::new();
            for (i, value) in values.iter().enumerate() {
                let second = 15 * (i as u64 + 1);
                scaler.read(at(second), 0, *value);
                let wanted = scaler.asked_by_metrics(&scaling, current, at(second)).unwrap().replicas;
                asked.push((second, wanted));
                let decided = scaler.decide(&scaling, current, at(second));
                prop_assert!((scaling.min..=scaling.max).contains(&decided.replicas));
                let recent = asked.iter().filter(|(then, _)| second - then < down);
                let most = recent.map(|(_, wanted)| *wanted).max().unwrap_or(0).min(scaling.max);
                prop_assert!(decided.replicas >= most.min(current), "{} of {most}", decided.replicas);
                prop_assert!(value.is_some() || decided.replicas >= current.min(most));
                current = decided.replicas;
            }
            let end = 15 * (values.len() as u64 + 1);
            for second in (end..end + 300).step_by(15) {
                scaler.read(at(second), 0, Some(21.0));
                current = scaler.decide(&scaling, current, at(second)).replicas;
            }
            let tolerated = (10..=11).contains(&current) || current == scaling.min || current == scaling.max;
            prop_assert!(tolerated, "{current} for 21 jobs, two for each replica");
        }
    }
}
