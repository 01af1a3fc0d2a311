//! Writes workflows, their runs, and the steps of the runs.
//!
//! In order: removed workflows, whose names then are free; new and changed workflows; runs with their
//! definitions; steps; pinned artifact versions; added elements; keys. Rows are collected in arrays, with one
//! statement for each type of change; where a missing row would break an invariant, the statement fails.
//!
//! Definitions are shared between runs, and thus between servers. They are inserted sorted by their hash, and
//! an existing one is locked, so that no other server deletes it before the new run is committed;
//! `housekeeping` has the other side.

use std::collections::{BTreeMap, BTreeSet};

use model::record::Change;
use model::run::{RunHead, RunState, StepRecord, WorkflowHead, WorkflowState};
use model::{RunId, WorkflowId};
use uuid::Uuid;

use super::{Steps, count, signed, uuid};
use crate::codec::{
    RunColumns, definition_hash, seal_definition, seal_elements, seal_run, seal_run_head, seal_step,
    seal_workflow, seal_workflow_head, step_columns,
};
use crate::postgres::error::Failure;
use crate::postgres::param::{
    Param, big, bigs, blobs, escape, ids, ints, optional_bigs, optional_ids, optional_texts, texts,
};

const WORKFLOW_ALREADY_EXISTS: &str = "a new workflow, or one with its name, already exists";
const WORKFLOW_NOT_FOUND: &str = "a changed workflow does not exist";
const RUN_ALREADY_EXISTS: &str = "a new run already exists";
const RUN_NOT_LIVE: &str = "a changed run is not live";

/// Columns of a workflow's state.
#[derive(Default)]
struct States {
    ids: Vec<Uuid>,
    generations: Vec<i64>,
    states: Vec<Vec<u8>>,
}

impl States {
    fn push(&mut self, id: WorkflowId, state: &WorkflowState) -> Result<(), Failure> {
        self.ids.push(uuid(id.to_bits()));
        self.generations.push(signed(state.generation)?);
        self.states.push(seal_workflow(id, state));
        Ok(())
    }

    /// `$1` to `$3`, the number of rows at `$4`.
    fn params(self) -> Vec<Param> {
        let rows = self.ids.len();
        vec![ids(self.ids), bigs(self.generations), blobs(self.states), count(rows)]
    }
}

/// Columns of workflows whose specs change too.
#[derive(Default)]
struct FullRows {
    states: States,
    namespaces: Vec<String>,
    names: Vec<String>,
    owners: Vec<Option<String>>,
    shards: Vec<i32>,
}

impl FullRows {
    fn push(&mut self, id: WorkflowId, head: &WorkflowHead, state: &WorkflowState) -> Result<(), Failure> {
        self.namespaces.push(escape(&head.spec.namespace));
        self.names.push(escape(&head.spec.name));
        self.owners.push(head.spec.owner.as_deref().map(escape));
        self.shards.push(id.shard().0.into());
        self.states.push(id, state)
    }

    /// `$1` to `$8`, the number of rows at `$4`.
    fn params(self) -> Vec<Param> {
        let mut params = self.states.params();
        params.extend([
            texts(self.namespaces),
            texts(self.names),
            optional_texts(self.owners),
            ints(self.shards),
        ]);
        params
    }
}

/// Specs of new generations.
#[derive(Default)]
struct Heads {
    ids: Vec<Uuid>,
    generations: Vec<i64>,
    heads: Vec<Vec<u8>>,
}

/// Labels of workflows whose specs change.
#[derive(Default)]
struct Labels {
    keys: Vec<String>,
    values: Vec<String>,
    of: Vec<Uuid>,
}

impl Labels {
    fn push(&mut self, id: WorkflowId, head: &WorkflowHead) {
        for (key, value) in &head.spec.labels {
            self.keys.push(escape(key));
            self.values.push(escape(value));
            self.of.push(uuid(id.to_bits()));
        }
    }
}

/// Columns of changed runs.
#[derive(Default)]
struct Runs {
    ids: Vec<Uuid>,
    statuses: Vec<i32>,
    expiries: Vec<Option<i64>>,
    states: Vec<Vec<u8>>,
}

impl Runs {
    fn push(&mut self, id: RunId, state: &RunState) {
        let columns = RunColumns::of(state);
        self.ids.push(uuid(id.to_bits()));
        self.statuses.push(columns.status.into());
        self.expiries.push(columns.expires_at);
        self.states.push(seal_run(id, &columns, state));
    }

    /// `$1` to `$4`, the number of rows at `$5`.
    fn params(self) -> Vec<Param> {
        let rows = self.ids.len();
        vec![
            ids(self.ids),
            ints(self.statuses),
            optional_bigs(self.expiries),
            blobs(self.states),
            count(rows),
        ]
    }
}

/// Columns of new runs.
#[derive(Default)]
struct NewRuns {
    runs: Runs,
    workflows: Vec<Option<Uuid>>,
    callers: Vec<Option<Uuid>>,
    schedules: Vec<Option<Uuid>>,
    backfills: Vec<Option<Uuid>>,
    namespaces: Vec<String>,
    names: Vec<String>,
    shards: Vec<i32>,
    definitions: Vec<Uuid>,
    heads: Vec<Vec<u8>>,
    /// Definitions by hash, each once.
    bodies: BTreeMap<u128, Vec<u8>>,
}

impl NewRuns {
    fn push(&mut self, id: RunId, head: &RunHead, state: &RunState) {
        let hash = definition_hash(&head.body);
        let spec = &head.definition.workflow;
        self.runs.push(id, state);
        self.workflows.push(head.workflow.map(|workflow| uuid(workflow.to_bits())));
        self.callers.push(head.caller.map(|caller| uuid(caller.run.to_bits())));
        let origin = head.origin.as_deref();
        self.schedules.push(origin.map(|origin| uuid(origin.schedule.to_bits())));
        self.backfills.push(origin.and_then(|origin| origin.backfill).map(|id| uuid(id.to_bits())));
        self.namespaces.push(escape(&spec.namespace));
        self.names.push(escape(&spec.name));
        self.shards.push(id.shard().0.into());
        self.definitions.push(uuid(hash));
        self.heads.push(seal_run_head(id, hash, head));
        self.bodies.entry(hash).or_insert_with(|| seal_definition(hash, &head.body));
    }
}

impl Steps {
    /// Writes the changes of workflows and runs in a batch. The name of a removed workflow is free for a new one.
    pub(super) fn workflows(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let removed = |change: &Change| match change {
            Change::RemoveWorkflow(id) => Some(uuid(id.to_bits())),
            _ => None,
        };
        let removed: Vec<Uuid> = changes.iter().filter_map(removed).collect();
        if !removed.is_empty() {
            self.add("DELETE FROM workflow_labels WHERE workflow = ANY($1)", vec![ids(removed.clone())]);
            self.add("DELETE FROM workflow_heads WHERE id = ANY($1)", vec![ids(removed.clone())]);
            self.add("DELETE FROM workflows WHERE id = ANY($1)", vec![ids(removed)]);
        }
        self.put_workflows(changes)?;
        let (mut new, mut changed) = (NewRuns::default(), Runs::default());
        for change in changes {
            match change {
                Change::Run { id, head: Some(head), state } => new.push(*id, head, state),
                Change::Run { id, head: None, state } => changed.push(*id, state),
                _ => {}
            }
        }
        self.new_runs(new);
        if !changed.ids.is_empty() {
            self.add_guarded(
                RUN_NOT_LIVE,
                "WITH changed AS (
                    UPDATE runs r SET status = u.status, expires_at = u.expires_at, state = u.state
                    FROM unnest($1, $2, $3, $4) AS u (id, status, expires_at, state)
                    WHERE r.id = u.id AND r.status < 4 RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM changed",
                changed.params(),
            );
        }
        self.put_steps(changes);
        self.pin_versions(changes);
        self.new_elements(changes);
        self.run_keys(changes);
        Ok(())
    }

    fn put_workflows(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let (mut new, mut replaced) = (FullRows::default(), FullRows::default());
        let (mut changed, mut heads) = (States::default(), Heads::default());
        let mut labels = Labels::default();
        for change in changes {
            let Change::Workflow { id, new: is_new, head, state } = change else { continue };
            match head {
                None if *is_new => {
                    return Err(Failure::Broken(format!("the new workflow {id} has no head")));
                }
                None => changed.push(*id, state)?,
                Some(head) => {
                    if *is_new { &mut new } else { &mut replaced }.push(*id, head, state)?;
                    labels.push(*id, head);
                    heads.ids.push(uuid(id.to_bits()));
                    heads.generations.push(signed(state.generation)?);
                    heads.heads.push(seal_workflow_head(*id, state.generation, head));
                }
            }
        }
        if !new.shards.is_empty() {
            self.add_guarded(
                WORKFLOW_ALREADY_EXISTS,
                "WITH put AS (
                    INSERT INTO workflows (id, generation, state, namespace, name, owner, shard)
                    SELECT * FROM unnest($1, $2, $3, $5, $6, $7, $8)
                    RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $4 THEN 1 ELSE 0 END) FROM put",
                new.params(),
            );
        }
        if !replaced.shards.is_empty() {
            let relabelled = vec![ids(replaced.states.ids.clone())];
            self.add("DELETE FROM workflow_labels WHERE workflow = ANY($1)", relabelled);
            self.add_guarded(
                WORKFLOW_NOT_FOUND,
                "WITH changed AS (
                    UPDATE workflows w SET generation = u.generation, state = u.state,
                        namespace = u.namespace, name = u.name, owner = u.owner
                    FROM unnest($1, $2, $3, $5, $6, $7, $8)
                        AS u (id, generation, state, namespace, name, owner, shard)
                    WHERE w.id = u.id RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $4 THEN 1 ELSE 0 END) FROM changed",
                replaced.params(),
            );
        }
        if !changed.ids.is_empty() {
            self.add_guarded(
                WORKFLOW_NOT_FOUND,
                "WITH changed AS (
                    UPDATE workflows w SET generation = u.generation, state = u.state
                    FROM unnest($1, $2, $3) AS u (id, generation, state)
                    WHERE w.id = u.id RETURNING 1
                )
                SELECT 1 / (CASE WHEN count(*) = $4 THEN 1 ELSE 0 END) FROM changed",
                changed.params(),
            );
        }
        if !labels.of.is_empty() {
            self.add(
                "INSERT INTO workflow_labels SELECT * FROM unnest($1, $2, $3) ON CONFLICT DO NOTHING",
                vec![texts(labels.keys), texts(labels.values), ids(labels.of)],
            );
        }
        if !heads.ids.is_empty() {
            let Heads { ids: of, generations, heads } = heads;
            self.add_guarded(
                "a new generation of a workflow already exists",
                "INSERT INTO workflow_heads SELECT * FROM unnest($1, $2, $3)",
                vec![ids(of), bigs(generations), blobs(heads)],
            );
        }
        Ok(())
    }

    fn new_runs(&mut self, new: NewRuns) {
        let NewRuns { runs, workflows, callers, schedules, backfills, namespaces, .. } = new;
        let NewRuns { names, shards, definitions, heads, bodies, .. } = new;
        if shards.is_empty() {
            return;
        }
        let run_heads = vec![ids(runs.ids.clone()), ids(definitions), blobs(heads)];
        let mut params = runs.params();
        params.extend([
            optional_ids(workflows),
            optional_ids(callers),
            optional_ids(schedules),
            optional_ids(backfills),
            texts(namespaces),
            texts(names),
            ints(shards),
        ]);
        self.add_guarded(
            RUN_ALREADY_EXISTS,
            "WITH put AS (
                INSERT INTO runs
                    (id, status, expires_at, state, workflow, caller, schedule, backfill, namespace, name,
                     shard)
                SELECT * FROM unnest($1, $2, $3, $4, $6, $7, $8, $9, $10, $11, $12)
                RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $5 THEN 1 ELSE 0 END) FROM put",
            params,
        );
        // Sorted by key, so that two servers that write the same definitions lock them in one order. An existing
        // definition is locked but not changed, so that no server deletes it before it can see the new run. A
        // definition that another server is deleting is waited for, and inserted again.
        let (hashes, bodies): (Vec<_>, Vec<_>) =
            bodies.into_iter().map(|(hash, body)| (uuid(hash), body)).unzip();
        self.add(
            "INSERT INTO run_definitions SELECT * FROM unnest($1, $2)
             ON CONFLICT (hash) DO UPDATE SET body = excluded.body WHERE FALSE",
            vec![ids(hashes), blobs(bodies)],
        );
        self.add_guarded(
            RUN_ALREADY_EXISTS,
            "INSERT INTO run_heads SELECT * FROM unnest($1, $2, $3)",
            run_heads,
        );
    }

    /// An expired key may be used again before it is deleted; a valid key may not.
    fn run_keys(&mut self, changes: &[Change]) {
        let (mut keys, mut bodies, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut expiries, mut shards) = (Vec::new(), Vec::new());
        for change in changes {
            if let Change::RunKey(key) = change {
                keys.push(uuid(key.key));
                bodies.push(uuid(key.body));
                runs.push(uuid(key.run.to_bits()));
                expiries.push(key.expires_at.as_micros());
                shards.push(i32::from(key.run.shard().0));
            }
        }
        if keys.is_empty() {
            return;
        }
        let rows = count(keys.len());
        let now = big(self.now.as_micros());
        self.add_guarded(
            "an idempotency key was given to a second run",
            "WITH put AS (
                INSERT INTO run_keys (key, body, run, expires_at, shard)
                SELECT * FROM unnest($1, $2, $3, $4, $5)
                ON CONFLICT (key) DO UPDATE SET body = excluded.body, run = excluded.run,
                    expires_at = excluded.expires_at, shard = excluded.shard
                WHERE run_keys.expires_at <= $6 OR run_keys.run = excluded.run
                RETURNING 1
            )
            SELECT 1 / (CASE WHEN count(*) = $7 THEN 1 ELSE 0 END) FROM put",
            vec![ids(keys), ids(bodies), ids(runs), bigs(expiries), ints(shards), now, rows],
        );
    }

    fn put_steps(&mut self, changes: &[Change]) {
        let (mut runs, mut lists, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut statuses, mut states, mut shards) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            let Change::Step(record) = change else { continue };
            let StepRecord { key, state } = &**record;
            runs.push(uuid(key.run.to_bits()));
            let (list, number) = step_columns(*key);
            lists.push(list);
            numbers.push(number);
            statuses.push(i32::from(state.status.code()));
            states.push(seal_step(*key, state));
            shards.push(i32::from(key.run.shard().0));
        }
        if runs.is_empty() {
            return;
        }
        self.add(
            "INSERT INTO steps (run, list, number, status, state, shard)
             SELECT * FROM unnest($1, $2, $3, $4, $5, $6)
             ON CONFLICT (run, list, number) DO UPDATE SET status = excluded.status, state = excluded.state",
            vec![ids(runs), bigs(lists), bigs(numbers), ints(statuses), blobs(states), ints(shards)],
        );
    }

    /// Pins the artifact versions that steps stored, for the runs of these steps.
    fn pin_versions(&mut self, changes: &[Change]) {
        let mut pins = BTreeSet::new();
        for change in changes {
            let Change::Step(record) = change else { continue };
            let run = record.key.run.to_bits();
            pins.extend(record.state.pinned_versions().into_iter().map(|version| (run, version)));
        }
        if pins.is_empty() {
            return;
        }
        let (mut runs, mut names, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        for (run, version) in pins {
            runs.push(uuid(run));
            names.push(version.artifact);
            hashes.push(version.sha256);
        }
        self.add(
            "INSERT INTO artifact_pins (run, name, sha256) SELECT * FROM unnest($1, $2, $3)
             ON CONFLICT DO NOTHING",
            vec![ids(runs), texts(names), texts(hashes)],
        );
    }

    fn new_elements(&mut self, changes: &[Change]) {
        let (mut runs, mut steps, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
        let mut batches = Vec::new();
        for change in changes {
            let Change::ElementBatch(batch) = change else { continue };
            runs.push(uuid(batch.key.run.to_bits()));
            steps.push(i64::from(batch.key.step));
            firsts.push(i64::from(batch.key.first));
            batches.push(seal_elements(batch));
        }
        if runs.is_empty() {
            return;
        }
        self.add_guarded(
            "new elements of a step already exist",
            "INSERT INTO element_batches (run, step, first, batch) SELECT * FROM unnest($1, $2, $3, $4)",
            vec![ids(runs), bigs(steps), bigs(firsts), blobs(batches)],
        );
    }
}
