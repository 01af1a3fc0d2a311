//! Requests of operators about a namespace: set or remove its settings; and what these settings mean for new jobs.

use std::sync::Arc;

use model::Refusal;
use model::namespace::NamespaceSettings;
use model::record::{Change, JobHead, NamespaceRecord};
use model::spec::PriorityClass;

use crate::context::Context;
use crate::input::Ticket;
use crate::jobs::Jobs;
use crate::output::Reply;

impl Jobs {
    pub(crate) fn set_namespace(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        name: String,
        settings: NamespaceSettings,
        expected_version: Option<u64>,
    ) {
        let found = self.queues.quotas().version(&name);
        if let Some(expected) = expected_version.filter(|&expected| expected != found) {
            return cx.reply(ticket, Err(Refusal::VersionMismatch { expected, found }));
        }
        let record = NamespaceRecord { name, settings, version: found + 1, updated_at: cx.now };
        self.queues.quotas_mut().set(&record);
        self.capacity_changed();
        let record = Arc::new(record);
        cx.rewrite(Change::Namespace(Arc::clone(&record)), |change| match change {
            Change::Namespace(known) => known.name == record.name,
            Change::RemoveNamespace(name) => **name == *record.name,
            _ => false,
        });
        cx.reply(ticket, Ok(Reply::Namespace(record)));
    }

    pub(crate) fn remove_namespace(&mut self, cx: &mut Context, ticket: Ticket, name: &str) {
        if self.queues.quotas().version(name) == 0 {
            return cx.reply(ticket, Err(Refusal::NamespaceNotFound { namespace: name.into() }));
        }
        self.queues.quotas_mut().remove_settings(name);
        self.capacity_changed();
        let is_same = |change: &Change| matches!(change, Change::Namespace(known) if known.name == name);
        cx.rewrite(Change::RemoveNamespace(name.into()), is_same);
        cx.reply(ticket, Ok(Reply::NamespaceRemoved));
    }

    /// Checks that the quota of a namespace allows `more` further jobs; the last of them is `jobs[index]`.
    pub(crate) fn check_job_limit(&self, index: usize, namespace: &str, more: u64) -> Result<(), Refusal> {
        match self.queues.quotas().job_limit(namespace, more) {
            Some(limit) => Err(Refusal::NamespaceJobLimit { index, namespace: namespace.into(), limit }),
            None => Ok(()),
        }
    }

    /// Returns a new job with the minimum sandbox of its namespace; `None` if it has that already, or is no process.
    ///
    /// All jobs pass here when they are created, so also those of schedules, workflows and services that were applied before
    /// the namespace got its minimum.
    pub(crate) fn with_min_sandbox(&self, head: &JobHead) -> Option<JobHead> {
        let minimum = self.queues.quotas().min_sandbox(&head.spec.namespace)?;
        let own = head.spec.run.as_process()?.sandbox;
        let sandbox = own.tightened(&minimum);
        if sandbox == own {
            return None;
        }
        let mut spec = (*head.spec).clone();
        spec.run.as_process_mut()?.sandbox = sandbox;
        Some(JobHead { body: spec.compact_json().into(), spec: Arc::new(spec), ..head.clone() })
    }

    /// Checks that a namespace allows jobs of a priority class.
    pub(crate) fn check_class(&self, namespace: &str, class: PriorityClass) -> Result<(), Refusal> {
        match self.queues.quotas().class_limit(namespace, class) {
            Some(highest) => {
                Err(Refusal::PriorityClassNotAllowed { namespace: namespace.into(), class, highest })
            }
            None => Ok(()),
        }
    }
}
