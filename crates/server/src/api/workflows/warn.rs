//! Warnings about valid workflows that depend on other workflows.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::api::Warning;
use model::run::WorkflowHead;
use model::validate;
use model::workflow::{SourceKind, TriggerSources, WorkflowSpec};

use super::pin::KnownSpecs;
use crate::api::Api;
use crate::api::problem::ApiError;

/// Most workflows read for detecting a cycle of triggers.
const LOOKUPS_MAX: usize = 100;

/// Returns warnings about probable mistakes, for each workflow. The workflows are accepted nevertheless.
pub(super) async fn warnings(api: &Api, heads: &[Arc<WorkflowHead>]) -> Result<Vec<Vec<Warning>>, ApiError> {
    let mut all = Vec::with_capacity(heads.len());
    for head in heads {
        let found = validate::workflow_warnings(&head.spec).into_iter();
        let mut found: Vec<_> = found.map(|p| Warning::of_workflow(&p.path, &p.message)).collect();
        if !head.spec.triggers.is_empty() {
            let alike = heads.iter().filter(|other| other.spec.namespace == head.spec.namespace);
            let known: KnownSpecs<'_> = alike.map(|other| (other.spec.name.as_str(), &other.spec)).collect();
            found.extend(of_triggers(api, &head.spec, &known).await?);
        }
        all.push(found);
    }
    Ok(all)
}

/// Returns the workflows that a trigger listens to.
fn sources(listens: &TriggerSources) -> impl Iterator<Item = &str> {
    let runs = listens.sources().iter().filter(|source| source.kind == SourceKind::Workflow);
    runs.map(|source| source.name.as_str())
}

async fn of_triggers(
    api: &Api,
    spec: &WorkflowSpec,
    known: &KnownSpecs<'_>,
) -> Result<Vec<Warning>, ApiError> {
    let mut found = Vec::new();
    let mut looked_at = BTreeSet::from([spec.name.clone()]);
    for (i, trigger) in spec.triggers.iter().enumerate() {
        let path = format!("triggers[{i}]");
        // Chains of workflows in which each starts the next one; the last one is `spec`.
        let first = sources(&trigger.listens).map(|name| vec![name.to_owned(), spec.name.clone()]);
        let mut open: Vec<Vec<String>> = first.filter(|chain| chain[0] != spec.name).collect();
        while let Some(chain) = open.pop() {
            if looked_at.len() > LOOKUPS_MAX || !looked_at.insert(chain[0].clone()) {
                continue;
            }
            let Some(source) = find(api, spec, known, &chain[0]).await? else {
                if chain.len() == 2 {
                    found.push(Warning::nobody_to_listen_to(&path, &chain[0]));
                }
                continue;
            };
            for name in source.triggers.iter().flat_map(|trigger| sources(&trigger.listens)) {
                let longer: Vec<_> = std::iter::once(name.to_owned()).chain(chain.iter().cloned()).collect();
                if name == spec.name {
                    found.push(Warning::starts_itself(&path, &longer));
                } else {
                    open.push(longer);
                }
            }
        }
    }
    Ok(found)
}

async fn find(
    api: &Api,
    spec: &WorkflowSpec,
    known: &KnownSpecs<'_>,
    name: &str,
) -> Result<Option<Arc<WorkflowSpec>>, ApiError> {
    if let Some(&found) = known.get(name) {
        return Ok(Some(Arc::clone(found)));
    }
    let row = api.node.store().workflow_named(&spec.namespace, name).await?;
    Ok(row.map(|row| row.head.spec))
}
