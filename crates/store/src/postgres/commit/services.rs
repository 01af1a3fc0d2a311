//! Writes services. The rows of their replicas are jobs.
//!
//! In order: removed services, whose names then are free; new services; changed ones with their specs; changed states;
//! labels. Rows are collected in arrays, with one statement for each type of change; where a missing row would break an
//! invariant, the statement fails.

use model::ServiceId;
use model::record::Change;
use model::service::{ServiceHead, ServiceState};
use uuid::Uuid;

use super::{Steps, count, uuid};
use crate::codec::{seal_service, seal_service_head};
use crate::postgres::error::Failure;
use crate::postgres::param::{Param, blobs, escape, ids, ints, optional_texts, texts};

const ALREADY_EXISTS: &str = "a new service, or one with its name, already exists";
const NOT_FOUND: &str = "a changed service does not exist";

/// Columns of a service's state.
#[derive(Default)]
struct States {
    ids: Vec<Uuid>,
    states: Vec<Vec<u8>>,
}

impl States {
    fn push(&mut self, id: ServiceId, state: &ServiceState) {
        self.ids.push(uuid(id.to_bits()));
        self.states.push(seal_service(id, state));
    }

    /// `$1` and `$2`, the number of rows at `$3`.
    fn params(self) -> Vec<Param> {
        let rows = self.ids.len();
        vec![ids(self.ids), blobs(self.states), count(rows)]
    }
}

/// Columns of services whose specs or revisions change too.
#[derive(Default)]
struct FullRows {
    states: States,
    namespaces: Vec<String>,
    names: Vec<String>,
    owners: Vec<Option<String>>,
    shards: Vec<i32>,
    heads: Vec<Vec<u8>>,
}

impl FullRows {
    fn push(&mut self, id: ServiceId, head: &ServiceHead, state: &ServiceState) {
        self.states.push(id, state);
        self.namespaces.push(escape(&head.spec.namespace));
        self.names.push(escape(&head.spec.name));
        self.owners.push(head.spec.owner.as_deref().map(escape));
        self.shards.push(id.shard().0.into());
        self.heads.push(seal_service_head(id, head));
    }

    fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// `$1` to `$7`, the number of rows at `$3`; and the heads with their IDs.
    fn params(self) -> (Vec<Param>, Vec<Param>) {
        let heads = vec![ids(self.states.ids.clone()), blobs(self.heads)];
        let mut params = self.states.params();
        params.extend([
            texts(self.namespaces),
            texts(self.names),
            optional_texts(self.owners),
            ints(self.shards),
        ]);
        (params, heads)
    }
}

/// Labels of services whose specs change.
#[derive(Default)]
struct Labels {
    keys: Vec<String>,
    values: Vec<String>,
    of: Vec<Uuid>,
}

impl Labels {
    fn push(&mut self, id: ServiceId, head: &ServiceHead) {
        for (key, value) in &head.spec.labels {
            self.keys.push(escape(key));
            self.values.push(escape(value));
            self.of.push(uuid(id.to_bits()));
        }
    }
}

impl Steps {
    /// Writes the changes of services in a batch. The name of a removed service is free for a new one.
    pub(super) fn services(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let (mut new, mut updated) = (FullRows::default(), FullRows::default());
        let (mut changed, mut labels, mut removed) = (States::default(), Labels::default(), Vec::new());
        for change in changes {
            match change {
                Change::RemoveService(id) => removed.push(uuid(id.to_bits())),
                Change::Service { id, new: true, head: None, .. } => {
                    return Err(Failure::Broken(format!("the new service {id} has no head")));
                }
                Change::Service { id, new: false, head: None, state } => changed.push(*id, state),
                Change::Service { id, new: is_new, head: Some(head), state } => {
                    if *is_new { &mut new } else { &mut updated }.push(*id, head, state);
                    labels.push(*id, head);
                }
                _ => {}
            }
        }
        self.remove_services(removed);
        self.new_services(new);
        self.updated_services(updated);
        self.changed_services(changed);
        if !labels.of.is_empty() {
            self.add(
                "INSERT INTO service_labels SELECT * FROM unnest($1, $2, $3) ON CONFLICT DO NOTHING",
                vec![texts(labels.keys), texts(labels.values), ids(labels.of)],
            );
        }
        Ok(())
    }

    fn remove_services(&mut self, removed: Vec<Uuid>) {
        if !removed.is_empty() {
            self.add("DELETE FROM service_labels WHERE service = ANY($1)", vec![ids(removed.clone())]);
            self.add("DELETE FROM service_heads WHERE id = ANY($1)", vec![ids(removed.clone())]);
            self.add("DELETE FROM services WHERE id = ANY($1)", vec![ids(removed)]);
        }
    }

    fn new_services(&mut self, new: FullRows) {
        if new.is_empty() {
            return;
        }
        let (params, heads) = new.params();
        self.add_guarded(
            ALREADY_EXISTS,
            "WITH put AS (
                INSERT INTO services (id, state, namespace, name, owner, shard)
                SELECT * FROM unnest($1, $2, $4, $5, $6, $7) RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $3 THEN 1 ELSE 0 END) FROM put",
            params,
        );
        self.add_guarded(ALREADY_EXISTS, "INSERT INTO service_heads SELECT * FROM unnest($1, $2)", heads);
    }

    fn updated_services(&mut self, updated: FullRows) {
        if updated.is_empty() {
            return;
        }
        let relabelled = vec![ids(updated.states.ids.clone())];
        let (params, heads) = updated.params();
        self.add("DELETE FROM service_labels WHERE service = ANY($1)", relabelled);
        self.add_guarded(
            NOT_FOUND,
            "WITH changed AS (
                UPDATE services s SET state = u.state, namespace = u.namespace, name = u.name,
                    owner = u.owner, shard = u.shard
                FROM unnest($1, $2, $4, $5, $6, $7) AS u (id, state, namespace, name, owner, shard)
                WHERE s.id = u.id RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $3 THEN 1 ELSE 0 END) FROM changed",
            params,
        );
        self.add(
            "UPDATE service_heads h SET head = u.head FROM unnest($1, $2) AS u (id, head) WHERE h.id = u.id",
            heads,
        );
    }

    /// Writes services of which only the state changed.
    fn changed_services(&mut self, changed: States) {
        if !changed.ids.is_empty() {
            self.add_guarded(
                NOT_FOUND,
                "WITH changed AS (
                    UPDATE services s SET state = u.state FROM unnest($1, $2) AS u (id, state)
                    WHERE s.id = u.id RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $3 THEN 1 ELSE 0 END) FROM changed",
                changed.params(),
            );
        }
    }
}
