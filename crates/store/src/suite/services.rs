//! Rules for services and their replicas.
//!
//! Filters of services are compared with `matches`, a direct implementation of their documentation, on random services.
//! Lists of jobs by service are covered in `lists`, the health of executions in `rows`.
//!
//! # Invariants
//! - A service is live until it is removed.
//! - A replica is found as long as its job is live, with its live execution.
//! - A row that does not exist cannot be changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::{Change, ExecutionRecord, JobHead, LiveRow};
use model::service::{ReplicaOrigin, ServiceHead, ServiceState};
use model::{ExecutionStatus, JobStatus, ServiceId, ShardId};

use super::sample::service_head_of;
use super::{Fixture, Job, SHARDS, Subject, execution, load, new_execution};
use crate::StoreError;
use crate::query::{Page, ReplicaRow, ServiceFilter, ServiceRow};

const ALL: Page<ServiceId> = Page { after: None, limit: 1_000 };

/// Service as the rules write it.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) id: ServiceId,
    pub(super) head: Arc<ServiceHead>,
    pub(super) state: ServiceState,
}

impl Service {
    /// Returns the change that creates the service or changes its spec.
    pub(super) fn change(&self, new: bool) -> Change {
        let (head, state) = (Some(Arc::clone(&self.head)), Box::new(self.state.clone()));
        Change::Service { id: self.id, new, head, state }
    }

    /// Returns the change of the state alone.
    pub(super) fn state_change(&self) -> Change {
        Change::Service { id: self.id, new: false, head: None, state: Box::new(self.state.clone()) }
    }

    fn live(&self) -> LiveRow {
        LiveRow::from(self.row())
    }

    fn row(&self) -> ServiceRow {
        ServiceRow { id: self.id, head: (*self.head).clone(), state: self.state.clone() }
    }
}

impl<S: Subject> Fixture<S> {
    pub(super) fn service(&mut self) -> Service {
        let shard = self.sampler.pick(&SHARDS);
        let id = self.sampler.service_id(shard);
        Service { id, head: Arc::new(self.sampler.service_head()), state: self.sampler.service_state() }
    }

    /// Returns the service with another spec of the same name.
    pub(super) fn service_with_new_spec(&mut self, service: &Service) -> Service {
        let ServiceHead { spec, revisions, .. } = self.sampler.service_head();
        let mut spec = (*spec).clone();
        spec.name.clone_from(&service.head.spec.name);
        let head = Arc::new(service_head_of(spec, revisions));
        Service { id: service.id, head, state: self.sampler.service_state() }
    }

    /// Commits random services; returns them newest first.
    async fn some_services(&mut self, count: usize) -> Vec<Service> {
        let mut services = Vec::new();
        for _ in 0..count {
            let service = self.service();
            self.commit(vec![service.change(true)]).await;
            services.insert(0, service);
        }
        services
    }

    /// Creates a job of the service without committing it.
    fn replica(&mut self, service: &Service, number: u32, status: JobStatus) -> Job {
        let namespace = service.head.spec.namespace.clone();
        let job = self.job_of(status, |spec| spec.namespace = namespace);
        let origin = ReplicaOrigin { service: service.id, replica: number, ..self.sampler.replica_origin() };
        let head = JobHead { replica: Some(Arc::new(origin)), ..(*job.head).clone() };
        Job { head: Arc::new(head), ..job }
    }
}

/// Returns the replica as a read returns it.
fn replica_row(job: &Job, execution: Option<&ExecutionRecord>) -> ReplicaRow {
    let mut state = job.state.clone();
    state.history.clear();
    ReplicaRow {
        job: job.id,
        namespace: job.head.spec.namespace.as_str().into(),
        replica: Arc::clone(job.head.replica.as_ref().unwrap()),
        state,
        execution: execution.cloned(),
    }
}

/// D5. Also after changes of its state and of its spec, and after a reopen.
pub async fn every_field_of_a_service_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(91).await;
    for _ in 0..20 {
        let mut service = scene.service();
        assert_eq!(scene.store().service(service.id).await.unwrap(), None);
        scene.commit(vec![service.change(true)]).await;
        assert_eq!(scene.live().await, [service.live()]);
        service.state = scene.sampler.service_state();
        scene.commit(vec![service.state_change()]).await;
        assert_eq!(scene.live().await, [service.live()]);
        service = scene.service_with_new_spec(&service);
        scene.commit(vec![service.change(false)]).await;
        scene = scene.reopen().await;
        assert_eq!(scene.live().await, [service.live()]);
        let (namespace, name) = (&service.head.spec.namespace, &service.head.spec.name);
        let store = scene.store();
        assert_eq!(store.service(service.id).await.unwrap(), Some(service.row()));
        assert_eq!(store.service_named(namespace, name).await.unwrap(), Some(service.row()));
        assert_eq!(store.service_named("nobody", name).await.unwrap(), None);
        scene.commit(vec![Change::RemoveService(service.id)]).await;
        assert_eq!(scene.live().await, []);
        assert_eq!(scene.store().service(service.id).await.unwrap(), None);
        assert_eq!(scene.store().service_named(namespace, name).await.unwrap(), None);
    }
}

/// D5, G5. Only rows of the leased shards; a service comes before the jobs of its replicas.
pub async fn a_load_sends_services_before_their_replicas<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(92).await;
    let wanted = ShardId(2);
    let (mut services, mut jobs) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let service = scene.service();
        let job = scene.replica(&service, 0, JobStatus::Waiting);
        scene.commit(vec![job.change(true), service.change(true)]).await;
        services.extend((service.id.shard() == wanted).then(|| service.live()));
        jobs.extend((job.id.shard() == wanted).then(|| job.row()));
    }
    assert!(services.len() > 3 && jobs.len() > 3, "shard {wanted} has too few rows");
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard == wanted).collect();
    let (loaded, rows) = load(scene.store(), &leases).await.unwrap();
    let expected = [services, jobs].concat();
    assert_eq!((loaded.rows, loaded.quarantined), (expected.len() as u64, 0));
    assert_eq!(rows, expected);
}

/// Reference implementation of the filter.
fn matches(filter: &ServiceFilter, service: &Service) -> bool {
    let spec = &service.head.spec;
    filter.namespace.as_ref().is_none_or(|namespace| *namespace == spec.namespace)
        && filter.owner.as_ref().is_none_or(|owner| spec.owner.as_ref() == Some(owner))
        && filter.text.as_ref().is_none_or(|text| spec.name.contains(&text.to_ascii_lowercase()))
        && filter.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
}

/// Also by labels that were changed, and for services that were removed.
pub async fn every_filter_of_services_finds_the_matching_services<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(93).await;
    let mut services = scene.some_services(80).await;
    for service in &mut services[..20] {
        *service = scene.service_with_new_spec(service);
        scene.commit(vec![service.change(false)]).await;
    }
    for service in services.drain(10..15) {
        scene.commit(vec![Change::RemoveService(service.id)]).await;
    }
    let text = |text: &str| Some(text.to_owned());
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let labels = services.iter().map(|service| &service.head.spec.labels).find(|labels| labels.len() > 1);
    let two_labels = labels.expect("some services have two labels").clone();
    let mut all_labels = services.iter().flat_map(|service| &service.head.spec.labels);
    let (key, value) = all_labels
        .find(|(_, value)| value.contains('\0'))
        .expect("some label has a zero byte, which PostgreSQL cannot store in a text");
    let with_zero = label(key, value);
    let mut all_labels = services.iter().flat_map(|service| &service.head.spec.labels);
    let (key, value) = all_labels.next().expect("some services have labels");
    let one_label = label(key, value);
    let owned = services.iter().map(|service| &service.head.spec).find(|spec| spec.owner.is_some());
    let owned = owned.expect("some services have an owner").clone();
    let part = services[3].head.spec.name[2..].to_ascii_uppercase();
    let of = ServiceFilter::default;
    for filter in [
        of(),
        ServiceFilter { namespace: text("team-a"), ..of() },
        ServiceFilter { owner: text("钟楼"), ..of() },
        ServiceFilter { owner: owned.owner.clone(), namespace: Some(owned.namespace.clone()), ..of() },
        ServiceFilter { text: Some(part), ..of() },
        ServiceFilter { text: text("S"), namespace: text("team-b"), ..of() },
        ServiceFilter { labels: one_label, ..of() },
        ServiceFilter { labels: with_zero, ..of() },
        ServiceFilter { labels: two_labels, ..of() },
    ] {
        let page = scene.store().services(&filter, ALL).await.unwrap();
        let expected: Vec<_> =
            services.iter().filter(|service| matches(&filter, service)).map(Service::row).collect();
        assert_eq!((page.items, page.more), (expected.clone(), false), "{filter:?}");
        assert!(!expected.is_empty(), "{filter:?} finds nothing");
        let (mut found, mut page) = (Vec::new(), Page { after: None, limit: 7 });
        loop {
            let listed = scene.store().services(&filter, page).await.unwrap();
            found.extend(listed.items);
            page.after = found.last().map(|row: &ServiceRow| row.id);
            if !listed.more {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
    }
    let nobody = ServiceFilter { namespace: text("nobody"), ..of() };
    assert_eq!(scene.store().services(&nobody, ALL).await.unwrap().items, []);
}

/// A safeguard: the engine also checks it.
pub async fn service_names_are_unique_and_free_once_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(94).await;
    let first = scene.service();
    scene.commit(vec![first.change(true)]).await;
    let second = Service { id: scene.service().id, ..first.clone() };
    scene.commit(vec![Change::RemoveService(first.id), second.change(true)]).await;
    assert_eq!(scene.live().await, [second.live()]);
    let third = Service { id: scene.service().id, ..first };
    let result = scene.try_commit(vec![third.change(true)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
}

/// D5. An engine that changes a missing row no longer has the record of it.
pub async fn a_missing_service_cannot_be_changed<S: Subject>() {
    for with_spec in [true, false] {
        let mut scene = Fixture::<S>::seeded(95).await;
        let service = scene.service();
        let change = if with_spec { service.change(false) } else { service.state_change() };
        let result = scene.try_commit(vec![change]).await;
        assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
    }
}

/// G5.
pub async fn a_service_of_a_shard_without_a_lease_is_refused<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(96).await;
    let service = scene.service();
    let shard = service.id.shard();
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard != shard).collect();
    for change in [service.change(true), Change::RemoveService(service.id)] {
        let batch = scene.batch(vec![change], Vec::new());
        let result = scene.store().commit(&leases, batch).await;
        assert!(matches!(result, Err(StoreError::Fenced { shard: found }) if found == shard), "{result:?}");
    }
    assert_eq!(scene.live().await, []);
}

/// Replicas that ended, or belong to another service, are left out. The order is that of the numbers.
pub async fn replicas_are_read_with_their_live_executions<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(97).await;
    let [service, other] = [scene.service(), scene.service()];
    scene.commit(vec![service.change(true), other.change(true)]).await;
    assert_eq!(scene.store().replicas(service.id).await.unwrap(), []);
    let mut jobs = Vec::new();
    for number in [3, 0, 2, 1] {
        let job = scene.replica(&service, number, JobStatus::Waiting);
        let elsewhere = scene.replica(&other, number, JobStatus::Waiting);
        scene.commit(vec![job.change(true), elsewhere.change(true)]).await;
        jobs.push(job);
    }
    jobs.sort_by_key(|job| job.head.replica.as_ref().unwrap().replica);
    let rows: Vec<_> = jobs.iter().map(|job| replica_row(job, None)).collect();
    assert_eq!(scene.store().replicas(service.id).await.unwrap(), rows);

    // An earlier execution has ended.
    let job = jobs[1].to(JobStatus::Running, &mut scene.sampler);
    let lost = scene.execution(&job, 1, ExecutionStatus::Lost);
    let mut running = scene.execution(&job, 2, ExecutionStatus::Running);
    scene.commit(vec![new_execution(&lost), new_execution(&running), job.change(false)]).await;
    for _ in 0..4 {
        running.health = Some(Box::new(scene.sampler.health()));
        scene.commit(vec![execution(&running)]).await;
        let found = scene.store().replicas(service.id).await.unwrap();
        let expected = [&rows[..1], &[replica_row(&job, Some(&running))], &rows[2..]].concat();
        assert_eq!(found, expected);
    }

    // The execution ends, and the job waits for its restart. Another replica ends.
    let waiting = job.to(JobStatus::Retrying, &mut scene.sampler);
    let failed = ExecutionRecord { status: ExecutionStatus::Failed, ..running.clone() };
    let ended = jobs[3].to(JobStatus::Cancelled, &mut scene.sampler);
    scene.commit(vec![execution(&failed), waiting.change(false), ended.change(false)]).await;
    let expected = [rows[0].clone(), replica_row(&waiting, None), rows[2].clone()];
    assert_eq!(scene.store().replicas(service.id).await.unwrap(), expected);
    assert_eq!(scene.store().execution(running.id).await.unwrap().unwrap().record, failed);
    assert_eq!(scene.store().replicas(other.id).await.unwrap().len(), 4);
}

/// The number of returned replicas is limited.
pub async fn replicas_are_found_by_the_namespaces_of_their_services<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(98).await;
    let mut rows = Vec::new();
    for service in scene.some_services(30).await {
        for number in 0..3 {
            let job = scene.replica(&service, number, JobStatus::Running);
            let running = scene.execution(&job, 1, ExecutionStatus::Running);
            scene.commit(vec![job.change(true), new_execution(&running)]).await;
            rows.push(replica_row(&job, Some(&running)));
        }
    }
    let job = scene.job(JobStatus::Waiting);
    scene.commit(vec![job.change(true)]).await;
    rows.sort_by_key(|row| (row.namespace.clone(), row.replica.service, row.replica.replica));
    let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for namespaces in [
        None,
        named(&[]),
        named(&["team-a"]),
        named(&["nobody"]),
        named(&["team-b", "default", "nobody", "team-b"]),
    ] {
        let within = |row: &&ReplicaRow| {
            namespaces.as_ref().is_none_or(|names| names.iter().any(|name| **name == *row.namespace))
        };
        let expected: Vec<_> = rows.iter().filter(within).cloned().collect();
        for limit in [expected.len(), expected.len() + 1, usize::MAX] {
            let found = scene.store().replicas_in(namespaces.as_deref(), limit).await.unwrap();
            assert_eq!((found.items, found.more), (expected.clone(), false), "{namespaces:?}");
        }
        if let Some(limit) = expected.len().checked_sub(4) {
            let found = scene.store().replicas_in(namespaces.as_deref(), limit).await.unwrap();
            assert!(found.more && found.items.len() == limit, "{namespaces:?}");
            assert!(found.items.iter().all(|row| expected.contains(row)));
        }
    }
}
