//! Random services, and the replicas and health that belong to them.
//!
//! Service names are unique. Replicas share a few services, so that lists by service find several jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::{EventKind, ServiceEvent};
use model::service::{
    CpuMetric, MemoryMetric, QueryMetric, QueueMetric, ReplicaCounts, ReplicaOrigin, Revision, RevisionCause,
    Rollout, RolloutStatus, Scaling, ScalingCause, ScalingChange, ScalingMetric, ScalingSchedule,
    ServiceHead, ServiceSpec, ServiceState, UpdatePolicy,
};
use model::spec::{ExecutionHealth, HealthStatus, PriorityClass};
use model::{Bytes, Duration, Millicores, ServiceId, ShardId, Timestamp};

use super::Sampler;

/// Returns a head with its body and with these revisions.
///
/// # Panics
/// Never: specs are plain data.
pub fn service_head_of(spec: ServiceSpec, revisions: Vec<Arc<Revision>>) -> ServiceHead {
    let body = serde_json::to_string(&spec).expect("specs are plain data").into();
    ServiceHead { spec: Arc::new(spec), body, revisions }
}

impl Sampler {
    /// Returns an ID newer than all earlier ones.
    pub fn service_id(&mut self, shard: ShardId) -> ServiceId {
        ServiceId::from_bits(self.bits(shard))
    }

    /// Returns one of a few services, which jobs refer to.
    fn some_service(&mut self) -> ServiceId {
        ServiceId::from_bits(u128::from(self.below(3) + 1) << 80)
    }

    /// Returns the replica that a job is, of one of a few services.
    pub fn replica_origin(&mut self) -> ReplicaOrigin {
        ReplicaOrigin {
            service: self.some_service(),
            name: self.text().into(),
            revision: self.number(),
            replica: self.pick(&[0, 1, 999, u32::MAX]),
        }
    }

    /// Returns a spec with values in many fields, and a unique name.
    pub fn service_spec(&mut self) -> ServiceSpec {
        let name = format!("s{:x}", self.bits(ShardId(0)) >> 16);
        let mut labels = BTreeMap::new();
        for _ in 0..self.below(3) {
            let (key, value) = (self.pick(&["team", "tier", "钟"]), self.text());
            labels.insert(key.to_owned(), value);
        }
        ServiceSpec {
            name,
            namespace: self.pick(&["default", "team-a", "team-b"]).to_owned(),
            owner: self.maybe(Self::text),
            labels,
            description: self.maybe(Self::text),
            replicas: self.maybe(|s| s.pick(&[0, 3, 1_000])),
            per_worker: false,
            scaling: self.maybe(|s| Box::new(s.scaling())),
            priority_class: self.pick(&[PriorityClass::Normal, PriorityClass::High]),
            job: Box::new(self.spec()),
            restart_backoff: Default::default(),
            min_healthy: Duration::from_millis(self.below(1 << 30)),
            update: UpdatePolicy {
                max_surge: self.pick(&[0, 1, 1_000]),
                max_unavailable: self.pick(&[0, 1, 1_000]),
                canaries: self.pick(&[0, 1]),
                auto_promote: self.coin(),
                progress_deadline: Duration::from_millis(self.below(1 << 30)),
                auto_rollback: self.coin(),
            },
        }
    }

    fn scaling(&mut self) -> Scaling {
        Scaling {
            min: self.pick(&[0, 1]),
            max: self.pick(&[1, 1_000]),
            schedules: vec![ScalingSchedule {
                cron: "0 8 * * *".into(),
                zone: "Asia/Shanghai".into(),
                min: self.pick(&[0, 1]),
            }],
            metrics: vec![
                ScalingMetric::Queue(QueueMetric {
                    name: self.text(),
                    jobs_per_replica: self.pick(&[1, 100]),
                }),
                ScalingMetric::Query(QueryMetric {
                    url: "http://prometheus:9090".into(),
                    query: self.text(),
                    per_replica: self.pick(&[0.5, 1e9]),
                }),
                ScalingMetric::Cpu(CpuMetric { per_replica: Millicores(self.pick(&[1, 500])) }),
                ScalingMetric::Memory(MemoryMetric { per_replica: Bytes(self.pick(&[1, 1 << 40])) }),
            ],
            up_window: Duration::from_millis(self.below(3_600_000)),
            down_window: Duration::from_millis(self.below(3_600_000)),
        }
    }

    fn scaling_change(&mut self) -> ScalingChange {
        ScalingChange {
            at: self.decided_at(),
            from: self.pick(&[0, 1_000]),
            to: self.pick(&[1, 999]),
            cause: self.pick(ScalingCause::ALL),
            value: self.maybe(|s| s.pick(&[0.25, 1e12])),
        }
    }

    /// Returns a time that JSON can represent, unlike some of those that users pass.
    fn decided_at(&mut self) -> Timestamp {
        self.any_time().min(Timestamp::from_micros(253_000_000_000_000_000))
    }

    fn revision(&mut self, number: u64) -> Revision {
        let body = serde_json::to_string(&self.service_spec()).expect("specs are plain data");
        Revision {
            number,
            body: body.into(),
            created_at: self.decided_at(),
            cause: self.pick(RevisionCause::ALL),
            rollback_to: self.maybe(Self::number),
            actor: self.text().into(),
            completed: self.coin(),
        }
    }

    /// Returns a head with a unique name and with some revisions.
    pub fn service_head(&mut self) -> ServiceHead {
        let first = self.below(1 << 40) + 1;
        let revisions = (0..=self.below(3)).map(|n| Arc::new(self.revision(first + n))).collect();
        service_head_of(self.service_spec(), revisions)
    }

    /// Returns a random state of a service.
    pub fn service_state(&mut self) -> ServiceState {
        let mut count = || self.pick(&[0, 1, 1_000]);
        let counts = ReplicaCounts {
            live: count(),
            running: count(),
            available: count(),
            updated: count(),
            updated_available: count(),
            stopping: count(),
        };
        ServiceState {
            deleting: self.coin(),
            version: self.number(),
            created_at: self.decided_at(),
            updated_at: self.decided_at(),
            replicas: self.pick(&[0, 1, 1_000]),
            rollout: Rollout {
                revision: self.number(),
                status: self.pick(RolloutStatus::ALL),
                paused: self.coin(),
                promoted: self.coin(),
                started_at: self.decided_at(),
                progressed_at: self.decided_at(),
                reached: self.pick(&[0, 1, 1_000]),
                ended_at: self.maybe(Self::decided_at),
                reason: self.maybe(|s| s.text().into()),
            },
            stable_revision: self.maybe(Self::number),
            counts,
            scaled: self.maybe(|s| Box::new(s.scaling_change())),
            scaling_problem: self.maybe(|s| s.text().into()),
        }
    }

    /// Returns an event about a service or the health of an execution.
    pub(super) fn service_event(&mut self) -> EventKind {
        let (service, name) = (self.service_id(ShardId(3)), self.text().into());
        match self.below(4) {
            0 => EventKind::Health {
                job: self.job_id(ShardId(3)),
                execution: self.execution_id(ShardId(3)),
                status: self.pick(HealthStatus::ALL),
            },
            1 => EventKind::Service { service, name, what: ServiceEvent::Scaled },
            2 => EventKind::Rollout {
                service,
                name,
                revision: self.number(),
                status: self.pick(RolloutStatus::ALL),
                paused: self.coin(),
            },
            _ => EventKind::Availability { service, name, available: self.pick(&[0, 999]), replicas: 1_000 },
        }
    }

    /// Returns a random health of an execution.
    pub fn health(&mut self) -> ExecutionHealth {
        ExecutionHealth {
            status: self.pick(HealthStatus::ALL),
            since: self.any_time(),
            detail: self.maybe(|s| s.text().into()),
            ports: (0..self.below(3)).map(|_| (self.text(), self.pick(&[0, 8_080, u16::MAX]))).collect(),
        }
    }
}
